/** Where a page broke: says what, and offers to load it again. The rest of the dashboard stays. */

import { isRouteErrorResponse, useRouteError } from "react-router";

import { asProblem, Problem } from "../api/problem";
import { NotFoundPage } from "../pages/problem/NotFoundPage";
import { ProblemPage } from "../pages/problem/ProblemPage";

export function RouteError({ alone = false }: { alone?: boolean }) {
  const error = useRouteError();
  if (isRouteErrorResponse(error) && error.status === 404) return <NotFoundPage />;
  return <ProblemPage problem={meant(error)} onRetry={() => window.location.reload()} alone={alone} />;
}

/** A page's own file that cannot be fetched is most often one of an older build. */
function meant(error: unknown): Problem {
  if (error instanceof TypeError && /import|module/i.test(error.message)) {
    return new Problem(0, "This page could not be loaded", "The API may be restarting, or may be a newer version now.");
  }
  return asProblem(error);
}
