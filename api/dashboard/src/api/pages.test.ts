import { expect, test } from "vitest";

import { at, everyPage } from "./pages";

const pages: Record<string, { items: string[]; next: string | null }> = {
  "": { items: ["a", "b"], next: "2" },
  "2": { items: ["c"], next: "3" },
  "3": { items: ["d"], next: null },
};
const fetched = (cursor: string | null) => Promise.resolve(pages[cursor ?? ""]!);

test("a list is followed to its end", async () => {
  expect(await everyPage(fetched)).toEqual({ items: ["a", "b", "c", "d"], cut: false });
});

test("a list that is longer than wanted says that it was cut", async () => {
  expect(await everyPage(fetched, 2)).toEqual({ items: ["a", "b", "c"], cut: true });
  expect(await everyPage(fetched, 3)).toEqual({ items: ["a", "b", "c", "d"], cut: false });
});

test("the first page is asked for without a cursor", () => {
  expect(at(null)).toEqual({ limit: 500 });
  expect(at("x")).toEqual({ limit: 500, cursor: "x" });
});
