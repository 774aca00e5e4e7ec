/** The frame around every page: navigation at the left, the bar at the top. */

import { ChartGantt, ListChecks, ListTree, type LucideIcon, Rocket, Server } from "lucide-react";
import { useEffect, useRef } from "react";
import { NavLink, Outlet, ScrollRestoration, useLocation, useNavigation } from "react-router";

import { useMayChange } from "../api/session";
import { useLiveStream } from "../api/stream/live";
import { ClusterUse } from "./ClusterUse";
import { ConnectionBadge } from "./ConnectionBadge";
import { Mark } from "./Mark";
import styles from "./Shell.module.css";
import { ThemeControl } from "./ThemeControl";
import { UserMenu } from "./UserMenu";

const PLACES: readonly { to: string; label: string; icon: LucideIcon }[] = [
  { to: "/jobs", label: "Jobs", icon: ListChecks },
  { to: "/queues", label: "Queues", icon: ListTree },
  { to: "/timeline", label: "Timeline", icon: ChartGantt },
  { to: "/nodes", label: "Nodes", icon: Server },
  { to: "/submit", label: "Submit", icon: Rocket },
];

export function Shell() {
  useLiveStream();
  const mayChange = useMayChange();
  const main = useRef<HTMLElement>(null);
  const { pathname } = useLocation();
  const page = pathname.split("/")[1];
  const busy = useNavigation().state !== "idle";
  const first = useRef(true);
  useEffect(() => {
    if (first.current) first.current = false;
    else main.current?.focus({ preventScroll: true }); // another page: whoever listens is told where they are
  }, [page]);
  return (
    <div className={styles.shell}>
      <a className={styles.skip} href="#main" onClick={() => main.current?.focus()}>
        Skip to the page
      </a>
      <aside className={styles.side}>
        <div className={styles.brand}>
          <Mark />
          <span>OpenEDT</span>
        </div>
        <nav aria-label="Pages" className={styles.nav}>
          {PLACES.filter(({ to }) => mayChange || to !== "/submit").map(({ to, label, icon: Icon }) => (
            <NavLink key={to} to={to} className={styles.link ?? ""}>
              <Icon size={17} strokeWidth={1.9} aria-hidden />
              <span>{label}</span>
            </NavLink>
          ))}
        </nav>
      </aside>
      <header className={styles.bar}>
        <ClusterUse />
        <div className={styles.tools}>
          <ConnectionBadge />
          <ThemeControl />
          <UserMenu />
        </div>
        <div className={styles.busy} data-busy={busy} aria-hidden />
      </header>
      <main id="main" ref={main} tabIndex={-1} className={styles.main}>
        <Outlet />
      </main>
      <ScrollRestoration />
    </div>
  );
}
