/**
 * The queues: their tree with what they may hold and hold, and below it the users and waiting jobs of the queue that is
 * looked at. The address holds that queue, what is closed, and the dialog that is open.
 */

import { useQuery } from "@tanstack/react-query";
import { ListTree, Plus, SlidersHorizontal, Trash2 } from "lucide-react";
import { useNavigate, useParams, useSearchParams } from "react-router";

import { queuesQuery } from "../../api/queues";
import { useIsAdmin } from "../../api/session";
import type { Queue, Queues } from "../../api/types";
import { Button } from "../../components/Button";
import { EmptyState } from "../../components/EmptyState";
import { number, plural } from "../../components/format";
import { PageHead } from "../../components/Page";
import { Facts, Panel } from "../../components/Panel";
import { ProblemNote } from "../../components/ProblemNote";
import { QueryFilter } from "../../components/QueryFilter";
import { Skeleton } from "../../components/Skeleton";
import { ForbiddenPage } from "../problem/ForbiddenPage";
import { isQueueVerb, QueueDialog } from "./QueueDialogs";
import { QueueLink } from "./QueueLink";
import styles from "./Queues.module.css";
import { QueueTree } from "./QueueTree";
import { UsersBelow, WaitingBelow } from "./Below";
import { addressOf, below, nearest, POLICIES, usageWords } from "./tree";

/** With more queues than this there is a field to find one. */
const MANY = 8;

export function QueuesPage() {
  const { "*": rest = "" } = useParams();
  const [search] = useSearchParams();
  const admin = useIsAdmin();
  const navigate = useNavigate();
  const { data, error, refetch } = useQuery(queuesQuery);
  const verb = search.get("do");
  if (isQueueVerb(verb) && !admin) return <ForbiddenPage />;
  const path = rest.replace(/\/+$/, "") === "" ? "" : `/${rest.replace(/\/+$/, "")}`;
  const shown = data?.queues.find((queue) => queue.path === path);
  const close = (to = path): void => void navigate({ pathname: addressOf(to), search: without(search, "do") }, { replace: true });
  const ask = (what: string): void => void navigate({ pathname: addressOf(shown ? path : ""), search: withDo(search, what) });
  return (
    <>
      <PageHead title="Queues" name={path === "" ? "Queues" : path} sub={data ? <Summary data={data} /> : "How slots are divided, and among whom"}>
        {data && data.queues.length > MANY && <QueryFilter label="Filter queues by path" placeholder="Part of a path" />}
        {admin && (
          <Button icon={Plus} disabled={!data} onClick={() => ask("add")}>
            Add queue
          </Button>
        )}
      </PageHead>
      {error && !data ? (
        <ProblemNote error={error} onRetry={() => void refetch()} />
      ) : !data ? (
        <Skeleton lines={6} height={30} />
      ) : (
        <div className={styles.page}>
          {data.queues.length === 1 && (
            <Panel>
              <EmptyState icon={ListTree} title="There is no queue but the root" command="edt queue set /research --quota 8 --weight 2">
                All jobs stand in the root and share its slots. A queue has slots of its own, its quota, and a weight by which it shares the rest;
                jobs name it with <code>edt submit --queue /research</code>.{admin ? "" : " An administrator makes queues."}
              </EmptyState>
            </Panel>
          )}
          <Panel title={`Tree (${data.queues.length})`} flush>
            <QueueTree queues={data.queues} selected={path} />
          </Panel>
          {shown ? (
            <Shown queue={shown} queues={data.queues} ask={admin ? ask : null} />
          ) : (
            <p role="alert" className={styles.unknown}>
              There is no queue {path}. Jobs that name it belong to <QueueLink path={nearest(data.queues, path)} />.
            </p>
          )}
        </div>
      )}
      {shown && isQueueVerb(verb) && <QueueDialog key={verb} verb={verb} queue={shown} onClose={close} />}
    </>
  );
}

function Summary({ data }: { readonly data: Queues }) {
  const [root] = data.queues;
  return (
    <span className="num">
      {plural(data.queues.length, "queue")} · {data.used} of {plural(data.slots, "slot")} held
      {root ? ` · ${plural(root.running, "job")} running, ${root.waiting} waiting` : ""}
    </span>
  );
}

/** The queue that is looked at: its numbers, and who holds and waits in it and below it. */
function Shown({ queue, queues, ask }: { readonly queue: Queue; readonly queues: readonly Queue[]; readonly ask: ((verb: string) => void) | null }) {
  const part = below(queues, queue.path);
  const name = queue.path === "" ? "the root" : queue.path;
  return (
    <div className={styles.columns}>
      <div className={styles.column}>
        <WaitingBelow queue={queue} part={part} />
        <UsersBelow queue={queue} part={part} />
      </div>
      <Panel
        title={queue.path === "" ? "Root" : queue.path}
        tools={
          ask && (
            <>
              <Button size="small" icon={SlidersHorizontal} aria-label={`Change ${name}`} onClick={() => ask("change")}>
                Change
              </Button>
              <Button size="small" look="danger" icon={Trash2} aria-label={`${queue.path === "" ? "Reset" : "Remove"} ${name}`} onClick={() => ask("remove")}>
                {queue.path === "" ? "Reset" : "Remove"}
              </Button>
            </>
          )
        }
      >
        <Facts
          facts={[
            ["Holds", `${queue.used} of the ${plural(queue.entitled, "slot")} that it is entitled to`],
            ["Could use", plural(queue.demand, "slot")],
            ["Quota", `${plural(queue.quota, "slot")} of its own`],
            ["Weight", number(queue.weight)],
            ["Limit", queue.limit === null ? "none" : `at most ${plural(queue.limit, "slot")}`],
            [
              "Policy",
              <span key="p">
                {queue.policy}: <span className="quiet">{POLICIES[queue.policy]}</span>
              </span>,
            ],
            ["Jobs", `${queue.running} running, ${queue.waiting} waiting`],
            ["Usage", `${usageWords(queue.usage)}; older ones count less`],
          ]}
        />
      </Panel>
    </div>
  );
}

function withDo(search: URLSearchParams, verb: string): string {
  const after = new URLSearchParams(search);
  after.set("do", verb);
  return after.toString();
}

function without(search: URLSearchParams, name: string): string {
  const after = new URLSearchParams(search);
  after.delete(name);
  return after.toString();
}
