/** What pages there are, and under which paths. Each page is fetched when it is first opened. */

import { createBrowserRouter, Navigate } from "react-router";

import { NotFoundPage } from "../pages/problem/NotFoundPage";
import { RequireSession } from "./RequireSession";
import { RouteError } from "./RouteError";
import { Shell } from "./Shell";
import { Waiting } from "./Waiting";

export function makeRouter() {
  return createBrowserRouter(
    [
      {
        errorElement: <RouteError alone />,
        hydrateFallbackElement: <Waiting />,
        children: [
          { path: "/login", lazy: async () => ({ Component: (await import("../pages/login/LoginPage")).LoginPage }) },
          {
            element: (
              <RequireSession>
                <Shell />
              </RequireSession>
            ),
            children: [
              {
                errorElement: <RouteError />,
                children: [
                  { index: true, element: <Navigate to="/jobs" replace /> },
                  {
                    path: "jobs",
                    lazy: async () => ({ Component: (await import("../pages/jobs/JobsPage")).JobsPage }),
                  },
                  {
                    path: "jobs/:id/:tab?",
                    lazy: async () => ({ Component: (await import("../pages/job/JobPage")).JobPage }),
                  },
                  {
                    path: "queues/*",
                    lazy: async () => ({ Component: (await import("../pages/queues/QueuesPage")).QueuesPage }),
                  },
                  {
                    path: "timeline",
                    lazy: async () => ({ Component: (await import("../pages/timeline/TimelinePage")).TimelinePage }),
                  },
                  {
                    path: "nodes/:name?/:verb?",
                    lazy: async () => ({ Component: (await import("../pages/nodes/NodesPage")).NodesPage }),
                  },
                  {
                    path: "submit",
                    lazy: async () => ({ Component: (await import("../pages/submit/SubmitPage")).SubmitPage }),
                  },
                  {
                    path: "frameworks",
                    lazy: async () => ({ Component: (await import("../pages/frameworks/FrameworksPage")).FrameworksPage }),
                  },
                  {
                    path: "forbidden",
                    lazy: async () => ({
                      Component: (await import("../pages/problem/ForbiddenPage")).ForbiddenPage,
                    }),
                  },
                  { path: "*", element: <NotFoundPage /> },
                ],
              },
            ],
          },
        ],
      },
    ],
    { basename: "/ui" },
  );
}
