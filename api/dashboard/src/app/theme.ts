/** Light, dark, or as the system has it. Kept in this browser; public/theme.js sets it before the first paint. */

import { useSyncExternalStore } from "react";

export type ThemeChoice = "light" | "dark" | "system";
export type Theme = "light" | "dark";

const KEY = "edt.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set<() => void>();

let choice = read();
system.addEventListener("change", apply);
window.addEventListener("storage", (event) => {
  if (event.key !== KEY) return;
  choice = read();
  apply();
});

function read(): ThemeChoice {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
}

function apply(): void {
  document.documentElement.dataset["theme"] = resolved();
  for (const watcher of watchers) watcher();
}

function resolved(): Theme {
  if (choice === "system") return system.matches ? "dark" : "light";
  return choice;
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function setTheme(next: ThemeChoice): void {
  choice = next;
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // not kept beyond this page, then
  }
  apply();
}

export function useThemeChoice(): ThemeChoice {
  return useSyncExternalStore(watch, () => choice);
}

/** The theme on the screen: what a canvas draws itself anew for. */
export function useTheme(): Theme {
  return useSyncExternalStore(watch, resolved);
}
