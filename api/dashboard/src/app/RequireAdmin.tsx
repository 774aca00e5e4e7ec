/** Shows its children to admins, and the 403 page to anybody else. The API refuses them, too. */

import type { ReactNode } from "react";

import { useIsAdmin } from "../api/session";
import { ForbiddenPage } from "../pages/problem/ForbiddenPage";

export function RequireAdmin({ children }: { children: ReactNode }) {
  return useIsAdmin() ? children : <ForbiddenPage />;
}
