/** Everything that stands around the pages. */

import { QueryClientProvider } from "@tanstack/react-query";
import { Tooltip } from "radix-ui";
import { useState } from "react";
import { RouterProvider } from "react-router/dom";

import { Toasts } from "../components/Toasts";
import { makeQueries } from "./queries";
import { makeRouter } from "./routes";

export function App() {
  const [queries] = useState(makeQueries);
  const [router] = useState(makeRouter);
  return (
    <QueryClientProvider client={queries}>
      <Tooltip.Provider delayDuration={350} skipDelayDuration={200}>
        <RouterProvider router={router} />
        <Toasts />
      </Tooltip.Provider>
    </QueryClientProvider>
  );
}
