import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { renderToStaticMarkup } from "react-dom/server";
import { MemoryRouter } from "react-router";
import { describe, expect, it } from "vitest";

import type { Job } from "../../../api/types";
import { job } from "../../../testing/jobs";
import { OverviewTab } from "./OverviewTab";

function shown(values: Partial<Job>): string {
  return renderToStaticMarkup(
    <QueryClientProvider client={new QueryClient()}>
      <MemoryRouter>
        <OverviewTab job={job(1, values)} />
      </MemoryRouter>
    </QueryClientProvider>,
  );
}

describe("what is said on top of a job's page", () => {
  it("is what a finished job's user should know, calmly", () => {
    const page = shown({ state: "FINISHED", message: "it used one slot, though it may have more" });
    expect(page).toMatch(/To know[^]*it used one slot/);
    expect(page).not.toContain('role="alert"');
  });

  it("is why a job failed, as an alert", () => {
    expect(shown({ state: "ERROR", message: "ValueError: no data" })).toMatch(/role="alert"[^]*The job failed[^]*ValueError: no data/);
  });

  it("is what is to be known of the submission, such as a misspelt option", () => {
    expect(shown({ remark: "--numWorkers went to the script" })).toMatch(/About the submission[^]*--numWorkers went to the script/);
    expect(shown({})).not.toContain("About the submission");
  });

  it("is nothing of a job that finished without a word", () => {
    expect(shown({ state: "FINISHED", message: null })).not.toContain("To know");
  });
});
