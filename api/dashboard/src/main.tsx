/** Where the dashboard starts. Next: app/routes.tsx, which says what pages there are. */

import "./styles/tokens.css";
import "./styles/base.css";
import "./charts/jobs.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./app/App";

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
