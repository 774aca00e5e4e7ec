/** What pages offer to a viewer, who reads everything and changes nothing. */

import { describe, expect, it } from "vitest";

import { job } from "../testing/jobs";
import { shownTo } from "../testing/shown";
import { SettingsTab } from "./job/settings/SettingsTab";
import { JobRow } from "./jobs/JobRow";
import { SubmitPage } from "./submit/SubmitPage";

describe("a viewer", () => {
  it("is told so where others submit a job", () => {
    expect(shownTo("viewer", <SubmitPage />)).toMatch(/403: a viewer changes nothing[^]*ana/);
  });

  it("reads how a job was submitted, and is not shown how to do it again", () => {
    expect(shownTo("viewer", <SettingsTab job={job(1, {})} />)).toContain("What runs");
    expect(shownTo("viewer", <SettingsTab job={job(1, {})} />)).not.toContain("Submit the same again");
    expect(shownTo("user", <SettingsTab job={job(1, {})} />)).toContain("Submit the same again");
  });

  it("gets no buttons on the row of a job", () => {
    const row = (ask: (() => void) | undefined) => (
      <table>
        <tbody>
          <JobRow job={job(1, {})} index={0} owner ask={ask} />
        </tbody>
      </table>
    );
    expect(shownTo("viewer", row(undefined))).not.toContain("<button");
    expect(shownTo("user", row(() => undefined))).toMatch(/Stop edt-1[^]*Remove edt-1/);
  });
});
