/** How the dashboard is built, served while it is worked on, and tested. */

import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const api = process.env["EDT_API"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  base: "/ui/",
  plugins: [react()],
  build: {
    outDir: "../edt_api/static",
    emptyOutDir: true,
    target: "es2023",
    assetsInlineLimit: 0, // the pages' policy takes scripts, styles and fonts from files alone
  },
  server: {
    // `npm run dev` against a running API; its session cookie is that of the API, so both are one origin here.
    proxy: Object.fromEntries(["/api", "/platform", "/auth"].map((path) => [path, { target: api, changeOrigin: false }])),
  },
  test: { include: ["src/**/*.test.{ts,tsx}"], environment: "node", css: true },
});
