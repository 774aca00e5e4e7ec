/**
 * A log as far as it was received: whole lines by bytes, so that nothing is lost or doubled however the answers are
 * cut. Pure, though it grows in place: a log may have a hundred thousand lines.
 */

export interface Line {
  /** 0 for the first line that is held. */
  readonly number: number;
  /** Byte of the file at which it begins. */
  readonly offset: number;
  readonly text: string;
}

const NEWLINE = 0x0a;
const RETURN = 0x0d;
/** A line without an end is cut here: somebody draws progress bars. */
const LONGEST = 64 * 1024;
const MOST_LINES = 200_000;

export class LogTail {
  /** Whole lines, oldest first. */
  readonly lines: Line[] = [];
  /** What stands behind the last newline. */
  #rest = new Uint8Array(0);
  /** Bytes received since the first, without a gap. */
  received = 0;
  /** Where the next question begins. */
  offset: number;
  /** Lines that were dropped, since there were too many. */
  dropped = 0;
  #next = 0;
  #skipping: boolean;
  readonly #decoder = new TextDecoder();

  /** `start`: the byte to begin at; the line that it falls into is left out. */
  constructor(readonly start = 0) {
    this.offset = start;
    this.#skipping = start > 0;
  }

  /** The line that is not ended yet; null: there is none. */
  get open(): Line | null {
    if (this.#rest.length === 0 || this.#skipping) return null;
    return { number: this.#next, offset: this.offset - this.#rest.length, text: this.#text(this.#rest) };
  }

  /** Whole lines, and the one that is not ended yet. */
  all(): readonly Line[] {
    return this.open ? [...this.lines, this.open] : [...this.lines];
  }

  /** Take the answer to a question for `asked`; `after` is the offset in it. Late answers are dropped. */
  feed(asked: number, bytes: Uint8Array, after: number): boolean {
    if (asked !== this.offset || bytes.length === 0) return false;
    const end = after >= asked + bytes.length ? after : asked + bytes.length;
    this.received += bytes.length;
    this.#take(bytes, end - bytes.length);
    this.offset = end;
    if (after < asked) this.#turnOver(after);
    return true;
  }

  #take(bytes: Uint8Array, from: number): void {
    let data = bytes;
    let offset = from;
    if (this.#rest.length > 0) {
      data = new Uint8Array(this.#rest.length + bytes.length);
      data.set(this.#rest);
      data.set(bytes, this.#rest.length);
      offset -= this.#rest.length;
    }
    let begin = 0;
    for (let at = data.indexOf(NEWLINE); at >= 0; at = data.indexOf(NEWLINE, begin)) {
      this.#push(data.subarray(begin, at), offset + begin);
      begin = at + 1;
    }
    while (data.length - begin > LONGEST) {
      this.#push(data.subarray(begin, begin + LONGEST), offset + begin);
      begin += LONGEST;
    }
    this.#rest = data.slice(begin);
  }

  /** The file was turned over at its size limit: the old one has ended, the new one begins. */
  #turnOver(after: number): void {
    if (this.#rest.length > 0) this.#push(this.#rest, this.offset - this.#rest.length);
    this.#rest = new Uint8Array(0);
    this.offset = after;
  }

  #push(bytes: Uint8Array, offset: number): void {
    if (this.#skipping) {
      this.#skipping = false;
      return;
    }
    this.lines.push({ number: this.#next++, offset, text: this.#text(bytes) });
    if (this.lines.length > MOST_LINES) {
      this.dropped += this.lines.splice(0, MOST_LINES / 10).length;
    }
  }

  #text(bytes: Uint8Array): string {
    const end = bytes.at(-1) === RETURN ? bytes.length - 1 : bytes.length;
    return plain(this.#decoder.decode(bytes.subarray(0, end)));
  }
}

// eslint-disable-next-line no-control-regex -- escape sequences begin with one
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007]*(?:\u0007|\u001b\\)|[@-_])/g;

/** A line as a terminal would leave it: colours gone, of what was drawn over only the last. */
export function plain(text: string): string {
  const clean = text.includes("\u001b") ? text.replace(ESCAPES, "") : text;
  return clean.slice(clean.lastIndexOf("\r") + 1);
}

/** The lines that hold a text, whatever its case; all where there is none. */
export function matching(lines: readonly Line[], text: string): readonly Line[] {
  const wanted = text.toLowerCase();
  return wanted === "" ? lines : lines.filter((line) => line.text.toLowerCase().includes(wanted));
}

/** A line cut where it holds the text: every second piece is a hit. */
export function cutAtHits(line: string, text: string): readonly string[] {
  if (text === "") return [line];
  const [low, wanted] = [line.toLowerCase(), text.toLowerCase()];
  const pieces: string[] = [];
  let begin = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, begin)) {
    pieces.push(line.slice(begin, at), line.slice(at, at + wanted.length));
    begin = at + wanted.length;
  }
  return [...pieces, line.slice(begin)];
}

export type Level = "bad" | "warn" | "plain";

/** How loud a line is, by the words that programs use. */
export function levelOf(text: string): Level {
  if (/\b(?:Traceback|[A-Z]\w*Error|[A-Z]\w*Exception|ERROR|FATAL|CRITICAL)\b/.test(text)) return "bad";
  return /\b(?:WARN|WARNING|[A-Z]\w*Warning)\b/.test(text) ? "warn" : "plain";
}

/** Where to begin in a file of so many bytes: at its beginning, or where it is long, near its end. */
export function startOf(bytes: number): number {
  return bytes > 4 * MIB ? bytes - MIB : 0;
}

const MIB = 1 << 20;
