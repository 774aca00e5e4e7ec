/** The Jobs page's filter and the address that holds it. */

import { expect, it } from "vitest";

import { filterOf, isEmpty, searchOf, toggled } from "./filter";

it("comes out of an address as it went in", () => {
  const filter = { states: ["PENDING_CRD_SCHEDULER", "RUNNING"], owner: "ana", text: "res net" };
  expect(filterOf(new URLSearchParams(searchOf(filter)))).toEqual(filter);
});

it("leaves no trace in the address where it is empty", () => {
  expect(searchOf(filterOf(new URLSearchParams()))).toEqual({});
  expect(isEmpty(filterOf(new URLSearchParams("q=%20&state=&other=1")))).toBe(true);
});

it("drops states that nobody knows", () => {
  expect(filterOf(new URLSearchParams("state=RUNNING,DREAMING")).states).toEqual(["RUNNING"]);
});

it("is the same however its states were chosen, so that it is one entry of the cache", () => {
  expect(toggled(toggled([], "ERROR"), "RUNNING")).toEqual(toggled(toggled([], "RUNNING"), "ERROR"));
  expect(toggled(["RUNNING", "ERROR"], "RUNNING")).toEqual(["ERROR"]);
});
