/** Pages as HTML, for tests: to somebody who is logged in, with what the cache holds already. */

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { MemoryRouter, Route, Routes } from "react-router";

import { keys } from "../api/keys";
import type { Me } from "../api/types";

export interface At {
  /** Where the page stands, and under which pattern. */
  readonly address?: string;
  readonly path?: string;
  /** What the cache holds, as pairs of key and answer. */
  readonly known?: readonly (readonly [readonly unknown[], unknown])[];
}

export function shownTo(role: Me["role"], page: ReactNode, { address = "/", path = "*", known = [] }: At = {}): string {
  const queries = new QueryClient();
  queries.setQueryData(keys.me, { name: "ana", role, version: "1" } satisfies Me);
  for (const [key, value] of known) queries.setQueryData(key, value);
  return renderToStaticMarkup(
    <QueryClientProvider client={queries}>
      <MemoryRouter initialEntries={[address]}>
        <Routes>
          <Route path={path} element={page} />
        </Routes>
      </MemoryRouter>
    </QueryClientProvider>,
  );
}
