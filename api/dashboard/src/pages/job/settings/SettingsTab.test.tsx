import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";

import { keys } from "../../../api/keys";
import type { Job } from "../../../api/types";
import { job } from "../../../testing/jobs";
import { SettingsTab } from "./SettingsTab";

function shown(values: Partial<Job>): string {
  const client = new QueryClient();
  client.setQueryData(keys.me, { name: "ana", role: "user", version: "0.1.0" });
  return renderToStaticMarkup(
    <QueryClientProvider client={client}>
      <SettingsTab job={job(1, values)} />
    </QueryClientProvider>,
  );
}

describe("the options that a job was submitted with", () => {
  it("are listed where they do nothing", () => {
    const page = shown({
      options: [
        { name: "--numWorker", values: ["4"], effect: true },
        { name: "--msd-label", values: ["team=a", "b"], effect: false },
      ],
    });
    expect(page).toMatch(/Options without effect[^]*--msd-label[^]*team=a[^]*b/);
    expect(page.split("Options without effect")[1]?.split("Args as they came")[0]).not.toContain("--numWorker");
  });

  it("are not listed where all of them do something", () => {
    expect(shown({})).not.toContain("Options without effect");
  });
});
