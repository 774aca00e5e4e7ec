/** All jobs that one may see, live: filters in the address, a table of any length below. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { ListChecks, Rocket } from "lucide-react";
import { useMemo } from "react";
import { useSearchParams } from "react-router";

import { jobsQuery } from "../../api/jobs";
import type { JobFilter } from "../../api/keys";
import { useMayChange } from "../../api/session";
import { ButtonLink, Button } from "../../components/Button";
import { EmptyState } from "../../components/EmptyState";
import { plural } from "../../components/format";
import { PageHead } from "../../components/Page";
import { ProblemNote } from "../../components/ProblemNote";
import { filterOf, isEmpty, searchOf } from "./filter";
import { Filters } from "./Filters";
import styles from "./JobsPage.module.css";
import { JobsTable } from "./JobsTable";

export function JobsPage() {
  const [search, setSearch] = useSearchParams();
  const filter = useMemo(() => filterOf(search), [search]);
  const jobs = useInfiniteQuery({ ...jobsQuery(filter), placeholderData: (before) => before });
  const mayChange = useMayChange();
  const rows = useMemo(() => jobs.data?.pages.flatMap((page) => page.items) ?? [], [jobs.data]);
  const total = jobs.data?.pages[0]?.total ?? 0;
  const show = (next: JobFilter) => setSearch(searchOf(next), { replace: true });

  return (
    <>
      <PageHead
        title="Jobs"
        name="Jobs"
        sub={
          <span role="status" className="num">
            {jobs.data ? plural(total, "job") + (isEmpty(filter) ? "" : " found") : "Loading"}
          </span>
        }
      >
        {mayChange && (
          <ButtonLink to="/submit" look="primary" icon={Rocket}>
            Submit a job
          </ButtonLink>
        )}
      </PageHead>
      <Filters filter={filter} onChange={show} />
      {jobs.error && rows.length === 0 ? (
        <ProblemNote error={jobs.error} onRetry={() => void jobs.refetch()} />
      ) : jobs.data && rows.length === 0 ? (
        <div className={styles.nothing}>
          {isEmpty(filter) ? <NoJobs /> : <NothingFound onClear={() => show(filterOf(new URLSearchParams()))} />}
        </div>
      ) : (
        <JobsTable
          jobs={rows}
          total={total}
          more={jobs.hasNextPage}
          busy={jobs.isFetchingNextPage}
          waiting={!jobs.data}
          onMore={() => void jobs.fetchNextPage()}
        />
      )}
    </>
  );
}

function NoJobs() {
  return (
    <EmptyState icon={Rocket} title="No job yet" command="edt submit main.py --max-workers 4 --follow">
      Hand in a training script: it starts with one slot and grows to what is free. With the command below, or on the
      page “Submit”.
    </EmptyState>
  );
}

function NothingFound({ onClear }: { readonly onClear: () => void }) {
  return (
    <EmptyState icon={ListChecks} title="No job matches" command="edt ls --all">
      <p>None of your jobs is in these states, or holds this text in its id, name or owner.</p>
      <Button onClick={onClear}>Show all jobs</Button>
    </EmptyState>
  );
}
