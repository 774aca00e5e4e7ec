/** Where one goes after logging in. */

import { expect, it } from "vitest";

import { returnPath } from "./session";

it("is the page that one was sent from", () => {
  expect(returnPath("/jobs/edt-7/logs?stream=err")).toBe("/jobs/edt-7/logs?stream=err");
});

it("is never another site, whatever an address says", () => {
  for (const bad of ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "", null]) {
    expect(returnPath(bad)).toBe("/jobs");
  }
});

it("is not the login page again", () => {
  expect(returnPath("/login?next=/jobs")).toBe("/jobs");
});
