/** What the API refuses, and how it is told. */

import { expect, it } from "vitest";

import { asProblem, byField, problemOf } from "./problem";

it("is read from RFC 9457", () => {
  const body = { type: "about:blank", title: "Not Found", status: 404, detail: "no job edt-9", code: "no-such-job" };
  expect(problemOf(404, body)).toMatchObject({ status: 404, title: "Not Found", detail: "no job edt-9", code: "no-such-job" });
});

it("is read from plain text, as the routes of WMLA answer", () => {
  expect(problemOf(400, "--numWorker: got 'x'\n")).toMatchObject({ status: 400, detail: "--numWorker: got 'x'" });
});

it("has a title where a gateway answers with nothing", () => {
  expect(problemOf(502, "").title).toBe("The API cannot answer now");
});

it("passes by itself where no answer came or the server broke, and not where the question was wrong", () => {
  expect(asProblem(new TypeError("Failed to fetch")).passing).toBe(true);
  expect([500, 503, 429, 400, 403, 404].map((status) => problemOf(status, "").passing)).toEqual([true, true, true, false, false, false]);
});

it("of the page itself is not taken for one of the API", () => {
  expect(asProblem(new RangeError("bad"))).toMatchObject({ status: -1, detail: "bad", passing: false });
});

it("tells what is wrong with each field of a form, and nothing where it is not about one", () => {
  const detail = "quota: Input should be greater than or equal to 0; weight: got 0, takes: a number; above 0";
  expect(byField(problemOf(400, { detail }), ["quota", "weight"])).toEqual({
    quota: "Input should be greater than or equal to 0",
    weight: "got 0, takes: a number; above 0",
  });
  expect(byField(problemOf(409, { detail: "queue /a has queues below it: remove /a/b first" }), ["path"])).toEqual({});
});
