/** The lines in sight of a log of any length. Scrolling up stops the following, the end takes it up again. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useLayoutEffect, useRef } from "react";

import styles from "./Logs.module.css";
import { cutAtHits, levelOf, type Line } from "./tail";

const ROW = 20;
const END = 24;

export function LogLines({
  lines,
  held,
  received,
  filter,
  wrap,
  follow,
  onFollow,
  empty,
}: {
  readonly lines: readonly Line[];
  readonly held: number;
  readonly received: number;
  readonly filter: string;
  readonly wrap: boolean;
  readonly follow: boolean;
  readonly onFollow: (follow: boolean) => void;
  /** Said where there is no line. */
  readonly empty: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const before = useRef(0);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 20,
    getItemKey: (at) => lines[at]?.number ?? at,
  });
  const height = rows.getTotalSize();

  useLayoutEffect(() => {
    const element = box.current;
    if (follow && element) {
      element.scrollTop = element.scrollHeight;
      before.current = element.scrollTop;
    }
  }, [follow, height, lines.length]);

  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    const up = element.scrollTop < before.current - 1;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < END;
    before.current = element.scrollTop;
    if (atEnd && !follow && !up) onFollow(true);
    else if (up && !atEnd && follow) onFollow(false);
  };

  const digits = String((lines.at(-1)?.number ?? 0) + 1).length;
  return (
    <div
      ref={box}
      role="log"
      aria-label="Log"
      aria-live="off"
      tabIndex={0}
      className={styles.lines}
      data-lines={held}
      data-bytes={received}
      data-wrap={wrap}
      onScroll={scrolled}
    >
      {lines.length === 0 && <p className={styles.empty}>{empty}</p>}
      <div style={{ height, minWidth: "100%", width: wrap ? "100%" : "max-content", position: "relative" }}>
        {rows.getVirtualItems().map(({ index, key, start }) => {
          const line = lines[index];
          return (
            line && (
              <div
                key={key}
                ref={wrap ? rows.measureElement : undefined}
                data-index={index}
                data-line={line.number}
                data-offset={line.offset}
                data-level={levelOf(line.text)}
                className={styles.line}
                style={{ transform: `translateY(${start}px)` }}
              >
                <i aria-hidden data-number={line.number + 1} style={{ width: `${digits + 2}ch` }} />
                <Text text={line.text} filter={filter} />
              </div>
            )
          );
        })}
      </div>
    </div>
  );
}

const Text = memo(function Text({ text, filter }: { readonly text: string; readonly filter: string }) {
  return (
    <span>
      {cutAtHits(text, filter).map((piece, at) => (at % 2 === 1 ? <mark key={at}>{piece}</mark> : piece))}
    </span>
  );
});
