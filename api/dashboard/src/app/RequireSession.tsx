/** Lets in who is logged in; anybody else is sent to the login page and comes back here afterwards. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Navigate, useLocation } from "react-router";

import { asProblem } from "../api/problem";
import { meQuery } from "../api/session";
import { ProblemPage } from "../pages/problem/ProblemPage";
import { Waiting } from "./Waiting";

export function RequireSession({ children }: { children: ReactNode }) {
  const me = useQuery({ ...meQuery, refetchInterval: (query) => (query.state.status === "error" ? 3_000 : false) });
  const here = useLocation();
  if (me.data) return children;
  if (me.data === null) {
    const path = `${here.pathname}${here.search}${here.hash}`;
    return <Navigate to={path === "/" || path === "/jobs" ? "/login" : `/login?next=${encodeURIComponent(path)}`} replace />;
  }
  if (me.error) return <ProblemPage problem={asProblem(me.error)} onRetry={() => void me.refetch()} alone />;
  return <Waiting />;
}
