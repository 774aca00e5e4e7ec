/**
 * The chart: a canvas over a box that scrolls, wheel and keys and drag.
 *
 * It is painted at most once a frame, and only when something changed or now has moved by a pixel. The box below the
 * canvas takes the pointer and the keys; the canvas only shows.
 */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

import { useTheme } from "../../app/theme";
import { type Bar, barAt } from "../../charts/bars";
import { laneAt, type Layout } from "../../charts/lanes";
import { type Mark, markAt, placeMarks } from "../../charts/marks";
import { panView, rangeOf, spanOf, type View, zoomView } from "../../charts/range";
import type { TimelineModel } from "./model";
import { AXIS, type Brushes, GUTTER, makeBrushes, paint, type Scene } from "./paint";
import styles from "./Timeline.module.css";

export type Hover =
  | { readonly kind: "bar"; readonly bar: Bar; readonly time: number; readonly x: number; readonly y: number }
  | { readonly kind: "mark"; readonly mark: Mark; readonly x: number; readonly y: number };

export interface TimelineCanvasProps {
  readonly model: TimelineModel;
  readonly version: number;
  readonly layout: Layout;
  readonly view: View;
  readonly onView: (view: View) => void;
  readonly strength: (execId: string) => number;
  /** A job that is pointed at elsewhere: in the legend. */
  readonly pointed: string | null;
  readonly onHover: (hover: Hover | null) => void;
  readonly onOpen: (execId: string, aside: boolean) => void;
  /** Id of the words that say which keys there are. */
  readonly help: string;
}

/** A press that moves less than this is a click. */
const CLICK_PIXELS = 4;
const WHEEL_ZOOM = 0.0016;
const KEY_ZOOM = 0.7;

export function TimelineCanvas(props: TimelineCanvasProps) {
  const theme = useTheme();
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const brushes = useRef<Brushes | null>(null);
  const current = useRef(props);
  const pointer = useRef<{ x: number; y: number } | null>(null);
  const hover = useRef<Hover | null>(null);
  const frame = useRef(0);
  const [size, setSize] = useState({ width: 0, height: 0 });

  const sceneNow = useCallback((): Scene | null => {
    const { model, layout, view, strength, pointed } = current.current;
    const element = box.current;
    if (!element || element.clientWidth <= GUTTER) return null;
    const now = model.now();
    const range = rangeOf(view, now, model.earliest);
    const width = element.clientWidth;
    const over = hover.current?.kind === "bar" ? hover.current.bar.execId : hover.current?.mark.fact.execId;
    return {
      layout, range, now, width, height: element.clientHeight, scrollTop: element.scrollTop, strength,
      bars: model.bars,
      nodes: new Map(model.nodes.map((node) => [node.name, node])),
      marks: placeMarks(layout, model.bars, model.resizes, model.failures, range, width - GUTTER),
      name: (execId) => model.jobs.get(execId)?.app_name ?? null,
      isGang: (execId) => model.isGang(execId),
      hovered: over ?? pointed,
      pointer: pointer.current?.x ?? null,
    };
  }, []);

  const find = useCallback((scene: Scene): Hover | null => {
    const at = pointer.current;
    if (!at || at.x < GUTTER || at.y < AXIS) return null;
    const y = at.y - AXIS + scene.scrollTop;
    const mark = markAt(scene.marks, at.x - GUTTER, y);
    if (mark) return { kind: "mark", mark, ...at };
    const lane = laneAt(scene.layout, y);
    if (!lane) return null;
    const perPixel = spanOf(scene.range) / (scene.width - GUTTER);
    const time = scene.range.from + (at.x - GUTTER) * perPixel;
    const bar = barAt(scene.bars.lane(lane.key), time, 3 * perPixel, scene.now);
    return bar && { kind: "bar", bar, time, ...at };
  }, []);

  const draw = useCallback(() => {
    frame.current = 0;
    const shown = canvas.current;
    const context = shown?.getContext("2d");
    let scene = sceneNow();
    if (!shown || !context || !scene) return;
    const found = find(scene);
    if (!sameHover(found, hover.current)) {
      hover.current = found;
      if (box.current) box.current.dataset["over"] = String(found !== null);
      current.current.onHover(found);
      scene = sceneNow() ?? scene;
    }
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(scene.width * ratio), Math.round(scene.height * ratio)];
    if (shown.width !== wide || shown.height !== high) [shown.width, shown.height] = [wide, high];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    brushes.current ??= makeBrushes(context);
    paint(context, scene, brushes.current);
  }, [find, sceneNow]);

  const request = useCallback(() => {
    if (frame.current === 0) frame.current = requestAnimationFrame(draw);
  }, [draw]);

  useLayoutEffect(() => {
    current.current = props;
    request();
  });

  useEffect(() => {
    brushes.current = null;
    request();
  }, [theme, request]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = (): void => {
      setSize({ width: element.clientWidth, height: element.clientHeight });
      brushes.current = null;
      request();
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, [request]);

  // Now moves: as often as it takes to move by a third of a pixel.
  const span = spanOf(rangeOf(props.view, props.model.now(), props.model.earliest));
  useEffect(() => {
    const quiet = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const every = Math.max(quiet ? 1000 : 33, Math.min(1000, (span / Math.max(300, size.width)) * 333));
    const timer = window.setInterval(request, every);
    return () => window.clearInterval(timer);
  }, [span, size.width, request]);

  const zoomBy = useCallback((factor: number, x: number | null) => {
    const { model, view, onView } = current.current;
    const scene = sceneNow();
    if (!scene) return;
    const pivot = x === null || x < GUTTER
      ? (scene.range.from + scene.range.to) / 2
      : scene.range.from + ((x - GUTTER) / (scene.width - GUTTER)) * spanOf(scene.range);
    onView(zoomView(view, factor, pivot, model.now(), model.earliest));
  }, [sceneNow]);

  const panBy = useCallback((pixels: number) => {
    const { model, view, onView } = current.current;
    const scene = sceneNow();
    if (!scene || pixels === 0) return;
    onView(panView(view, (pixels / (scene.width - GUTTER)) * spanOf(scene.range), model.now(), model.earliest));
  }, [sceneNow]);

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const onWheel = (event: WheelEvent): void => {
      const x = event.clientX - element.getBoundingClientRect().left;
      if (x < GUTTER && !event.ctrlKey) return; // over the names it scrolls, as everywhere
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) panBy((event.deltaX || event.deltaY) * lines);
      else zoomBy(Math.exp(Math.max(-240, Math.min(240, event.deltaY * lines)) * WHEEL_ZOOM * (event.ctrlKey ? 4 : 1)), x);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  }, [panBy, zoomBy]);

  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const pointAt = (event: React.PointerEvent) => {
    const rect = event.currentTarget.getBoundingClientRect();
    return { x: event.clientX - rect.left, y: event.clientY - rect.top };
  };
  const press = (event: React.PointerEvent<HTMLDivElement>): void => {
    if (event.button !== 0 || pointAt(event).x > event.currentTarget.clientWidth) return;
    drag.current = { ...pointAt(event), moved: false };
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  const move = (event: React.PointerEvent<HTMLDivElement>): void => {
    const at = pointAt(event);
    pointer.current = at;
    const from = drag.current;
    if (from && (from.moved || Math.hypot(at.x - from.x, at.y - from.y) > CLICK_PIXELS)) {
      panBy(from.x - at.x);
      event.currentTarget.scrollTop += from.y - at.y;
      drag.current = { ...at, moved: true };
    }
    request();
  };
  const release = (event: React.PointerEvent<HTMLDivElement>): void => {
    const was = drag.current;
    drag.current = null;
    const found = hover.current;
    if (was && !was.moved && found) {
      const execId = found.kind === "bar" ? found.bar.execId : found.mark.fact.execId;
      current.current.onOpen(execId, event.ctrlKey || event.metaKey);
    }
  };
  const leave = (): void => {
    pointer.current = null;
    request();
  };
  const key = (event: React.KeyboardEvent<HTMLDivElement>): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const width = size.width - GUTTER;
    const steps: Record<string, () => void> = {
      "+": () => zoomBy(KEY_ZOOM, null),
      "=": () => zoomBy(KEY_ZOOM, null),
      "-": () => zoomBy(1 / KEY_ZOOM, null),
      _: () => zoomBy(1 / KEY_ZOOM, null),
      ArrowLeft: () => panBy(-width * (event.shiftKey ? 0.5 : 0.1)),
      ArrowRight: () => panBy(width * (event.shiftKey ? 0.5 : 0.1)),
      Home: () => {
        const { model, view, onView } = current.current;
        onView({ kind: "follow", span: spanOf(rangeOf(view, model.now(), model.earliest)) });
      },
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    step();
  };

  return (
    <div className={styles.frame} style={{ height: props.layout.height + AXIS + 6 }}>
      <div
        ref={box}
        className={styles.box}
        tabIndex={0}
        role="application"
        aria-label="Slots over time"
        aria-describedby={props.help}
        onPointerDown={press}
        onPointerMove={move}
        onPointerUp={release}
        onPointerCancel={() => (drag.current = null)}
        onPointerLeave={leave}
        onScroll={request}
        onKeyDown={key}
      >
        <div style={{ height: props.layout.height + AXIS }} />
      </div>
      <canvas ref={canvas} className={styles.canvas} style={{ width: size.width, height: size.height }} aria-hidden />
    </div>
  );
}

function sameHover(one: Hover | null, other: Hover | null): boolean {
  if (one === null || other === null) return one === other;
  if (one.x !== other.x || one.y !== other.y) return false;
  if (one.kind === "bar") return other.kind === "bar" && one.bar === other.bar;
  return other.kind === "mark" && one.mark.fact === other.mark.fact;
}
