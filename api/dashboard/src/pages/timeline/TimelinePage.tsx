/** The timeline: slots by node, time, and who held them. Next: TimelineCanvas.tsx, model.ts. */

import { ChartGantt, Table2 } from "lucide-react";
import { useCallback, useDeferredValue, useId, useMemo, useRef, useState } from "react";
import { useNavigate } from "react-router";

import { useMe, useSeesAll } from "../../api/session";
import { useNow } from "../../api/stream/live";
import { layOut } from "../../charts/lanes";
import { rangeOf, spanOf, zoomView } from "../../charts/range";
import { Button } from "../../components/Button";
import { EmptyState } from "../../components/EmptyState";
import { duration, plural } from "../../components/format";
import { PageHead } from "../../components/Page";
import { ProblemNote } from "../../components/ProblemNote";
import { Skeleton } from "../../components/Skeleton";
import { toast } from "../../components/toasts";
import { HoverCard } from "./HoverCard";
import { Legend } from "./Legend";
import { MarksKey } from "./MarksKey";
import type { TimelineModel } from "./model";
import styles from "./Timeline.module.css";
import { type Hover, TimelineCanvas } from "./TimelineCanvas";
import { TimelineTables } from "./TimelineTables";
import { Toolbar } from "./Toolbar";
import { useTimeline } from "./useTimeline";
import { useView, useWord } from "./viewState";

/** How strongly jobs are drawn that are not looked for, and those of others. */
const FADED = 0.14;
const OTHERS = 0.42;

export function TimelinePage() {
  const me = useMe();
  const seesAll = useSeesAll();
  const [view, setView] = useView();
  const [text, setText] = useWord("q");
  const [node, setNode] = useWord("node");
  const [mineWord, setMineWord] = useWord("mine");
  const [tableWord, setTableWord] = useWord("table");
  // A user's own jobs stand out by themselves; for whoever sees the jobs of all, all are alike.
  const mine = mineWord === "" ? !seesAll : mineWord === "1";

  const wanted = useCallback((model: TimelineModel) => rangeOf(view, model.now(), model.earliest), [view]);
  const { model, version, waiting, error, retry } = useTimeline(wanted, view.kind === "all");

  const names = model.nodes.map((each) => each.name);
  const layout = useMemo(() => layOut(model.nodes.filter((each) => node === "" || each.name === node)), [model, version, node]);
  const finds = useMemo(() => matcher(model, text), [model, version, text]);
  const strength = useCallback((execId: string): number => {
    if (!finds(execId)) return FADED;
    return mine && model.jobs.get(execId)?.owner !== me.name ? OTHERS : 1;
  }, [finds, mine, me.name, model]);

  const [hover, setHover] = useState<Hover | null>(null);
  const [pointed, setPointed] = useState<string | null>(null);
  const stage = useRef<HTMLDivElement>(null);
  const navigate = useNavigate();
  const open = useCallback((execId: string, aside: boolean) => {
    const closed = model.closed(execId);
    if (closed !== null) toast.say(execId, closed);
    else if (aside) window.open(`/ui/jobs/${execId}`, "_blank", "noopener");
    else void navigate(`/jobs/${execId}`);
  }, [model, navigate]);

  const calm = useDeferredValue(version); // the chart comes first
  const help = useId();
  const tick = useNow(tableWord === "1" ? 1_000 : 10_000);
  const range = wanted(model);
  const shown = useMemo(() => rangeOf(view, model.now(), model.earliest), [view, model, calm, tick]);

  return (
    <div className={styles.page}>
      <PageHead title="Timeline" name="Timeline" sub={<Summary model={model} />}>
        <Button icon={Table2} aria-pressed={tableWord === "1"} onClick={() => setTableWord(tableWord === "1" ? "" : "1")}>Show as table</Button>
      </PageHead>
      <Toolbar
        view={view} range={range} onView={setView}
        onZoom={(factor) => setView(zoomView(view, factor, (range.from + range.to) / 2, model.now(), model.earliest))}
        nodes={names} node={node} onNode={setNode} text={text} onText={setText}
        mine={mine} onMine={(on) => setMineWord(on === !seesAll ? "" : on ? "1" : "0")}
      />
      {error !== null && <ProblemNote error={error} onRetry={retry} />}
      {waiting ? (
        <div className={styles.waiting}><Skeleton lines={6} height={22} /></div>
      ) : model.nodes.length === 0 ? (
        <EmptyState icon={ChartGantt} title="No node has joined yet" command={`edt agent --api ${location.origin} --token "$(cat EDT_HOME/join-token)"`}>
          Slots appear here as soon as a machine offers them.
        </EmptyState>
      ) : (
        <>
          <section aria-label="Timeline chart" className={styles.stage} ref={stage}>
            <TimelineCanvas
              model={model} version={version} layout={layout} view={view} onView={setView} strength={strength} pointed={pointed}
              onHover={setHover} onOpen={open} help={help}
            />
            {hover && <HoverCard hover={hover} model={model} stage={stage.current} />}
          </section>
          <Legend model={model} version={calm} range={shown} shows={finds} onPoint={setPointed} />
          <MarksKey />
          <p id={help} className={styles.help}>
            <span><kbd>+</kbd> <kbd>-</kbd> or the wheel zooms</span>
            <span><kbd>←</kbd> <kbd>→</kbd> or dragging moves</span>
            <span><kbd>Home</kbd> follows now</span>
            <span>Showing {duration(spanOf(shown))}</span>
          </p>
          {tableWord === "1" && <TimelineTables model={model} version={calm} layout={layout} range={shown} shows={finds} />}
        </>
      )}
    </div>
  );
}

function Summary({ model }: { readonly model: TimelineModel }) {
  const slots = model.nodes.reduce((sum, node) => sum + node.slots.length, 0);
  return <span>{slots === 0 ? "Who held which slot, and when" : `${plural(model.nodes.length, "node")}, ${plural(slots, "slot")}`}</span>;
}

/** Whether a job is looked for: by its id, its name or its owner. */
function matcher(model: TimelineModel, text: string): (execId: string) => boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return () => true;
  const known = new Map<string, boolean>(); // asked for each bar of each frame
  return (execId) => {
    let found = known.get(execId);
    if (found === undefined) {
      const job = model.jobs.get(execId);
      const texts = [execId, job?.owner, job?.app_name].map((each) => each?.toLowerCase() ?? "");
      // A whole id means that job alone: edt-1 is not edt-12.
      found = words.every((word) => execId === word || (!/^edt-\d+$/.test(word) && texts.some((each) => each.includes(word))));
      known.set(execId, found);
    }
    return found;
  };
}
