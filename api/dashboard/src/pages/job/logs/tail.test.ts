/** A log as far as it was received: nothing lost, nothing doubled. */

import { describe, expect, it } from "vitest";

import { cutAtHits, levelOf, LogTail, matching, plain, startOf } from "./tail";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A file that grows, asked as the API is asked. */
function read(tail: LogTail, file: Uint8Array, most: number): void {
  const bytes = file.subarray(tail.offset, tail.offset + most);
  tail.feed(tail.offset, bytes, tail.offset + bytes.length);
}

const texts = (tail: LogTail): string[] => tail.lines.map((line) => line.text);

describe("a tail", () => {
  it("holds the same lines however the answers are cut, in the middle of letters too", () => {
    const file = encode("één\nzwei — drei\n\n四\n");
    for (let most = 1; most <= file.length; most += 1) {
      const tail = new LogTail();
      while (tail.offset < file.length) read(tail, file, most);
      expect(texts(tail)).toEqual(["één", "zwei — drei", "", "四"]);
      expect(tail.received).toBe(file.length);
    }
  });

  it("knows at which byte each line begins", () => {
    const file = encode("één\nzwei\ndrei\n");
    const tail = new LogTail();
    while (tail.offset < file.length) read(tail, file, 4);
    expect(tail.lines.map(({ number, offset }) => [number, offset])).toEqual([
      [0, 0],
      [1, 6],
      [2, 11],
    ]);
  });

  it("drops the answer to a question that was asked twice", () => {
    const tail = new LogTail();
    expect(tail.feed(0, encode("one\n"), 4)).toBe(true);
    expect(tail.feed(0, encode("one\n"), 4)).toBe(false);
    expect(texts(tail)).toEqual(["one"]);
  });

  it("shows a line that is not ended, and makes it one when its end comes", () => {
    const tail = new LogTail();
    tail.feed(0, encode("one\ntw"), 6);
    expect(tail.open).toEqual({ number: 1, offset: 4, text: "tw" });
    tail.feed(6, encode("o\n"), 8);
    expect(tail.open).toBeNull();
    expect(texts(tail)).toEqual(["one", "two"]);
  });

  it("begins in the middle of a file with the first whole line", () => {
    const file = encode("one\ntwo\nthree\n");
    const tail = new LogTail(2);
    read(tail, file, 100);
    expect(tail.lines.map(({ offset, text }) => [offset, text])).toEqual([
      [4, "two"],
      [8, "three"],
    ]);
  });

  it("goes on at the beginning of the new file where the old one was turned over", () => {
    const tail = new LogTail();
    tail.feed(0, encode("old\nlast of old"), 15);
    tail.feed(15, encode(" file\n"), 0); // the rest of the old one, and the word to begin anew
    tail.feed(0, encode("new\n"), 4);
    expect(tail.lines.map(({ number, offset, text }) => [number, offset, text])).toEqual([
      [0, 0, "old"],
      [1, 4, "last of old file"],
      [2, 0, "new"],
    ]);
    expect(tail.received).toBe(25);
  });

  it("takes the whole beginning of the new file where nothing was left of the old one", () => {
    const tail = new LogTail();
    tail.feed(0, encode("a long old line\n"), 16);
    tail.feed(16, encode("new\n"), 4);
    expect(texts(tail)).toEqual(["a long old line", "new"]);
    expect(tail.offset).toBe(4);
  });

  it("cuts a line that never ends, rather than to hold it back for ever", () => {
    const tail = new LogTail();
    tail.feed(0, encode("x".repeat(200_000)), 200_000);
    expect(tail.lines).toHaveLength(3);
    expect(tail.open?.text).toHaveLength(200_000 - 3 * 65_536);
  });

  it("reads a megabyte in the time of a frame or two", () => {
    const bytes = encode("2026-11-21 Train, step: 1, loss: 0.5\n".repeat(28_000));
    const before = performance.now();
    new LogTail().feed(0, bytes, bytes.length);
    expect(performance.now() - before).toBeLessThan(500);
  });
});

describe("a line", () => {
  it("is shown as a terminal would leave it", () => {
    expect(plain("\u001b[31mred\u001b[0m alert")).toBe("red alert");
    expect(plain("10 %\r50 %\r100 %")).toBe("100 %");
    expect(plain("\u001b]8;;http://x\u0007link\u001b]8;;\u0007")).toBe("link");
  });

  it("without its carriage return is the line", () => {
    const tail = new LogTail();
    tail.feed(0, encode("dos\r\n"), 5);
    expect(texts(tail)).toEqual(["dos"]);
  });

  it("is found by a part of it, whatever its case, and cut there", () => {
    const lines = ["Loss: 1", "accuracy"].map((text, number) => ({ number, offset: 0, text }));
    expect(matching(lines, "LOSS").map((line) => line.text)).toEqual(["Loss: 1"]);
    expect(cutAtHits("a Loss, a loss", "loss")).toEqual(["a ", "Loss", ", a ", "loss", ""]);
    expect(cutAtHits("a.b", ".")).toEqual(["a", ".", "b"]);
  });

  it("is as loud as its words, and loss is no error", () => {
    expect(["ValueError: no", "UserWarning: x", "loss: 0.3, error rate 2"].map(levelOf)).toEqual(["bad", "warn", "plain"]);
  });
});

it("begins at the end of a file that is too long to be read whole", () => {
  expect(startOf(1000)).toBe(0);
  expect(startOf(10 * 1024 ** 2)).toBe(9 * 1024 ** 2);
});
