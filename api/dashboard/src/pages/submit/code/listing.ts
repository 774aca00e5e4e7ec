/** What is in a zip or a tar, read in the browser: names alone. The API checks the archive itself. */

const decoder = new TextDecoder();
/** A packed tar is read this far; the main script stands near its beginning, or its name is typed. */
const MOST_UNPACKED = 96 * 1024 * 1024;
const BLOCK = 512;
const EOCD = 0x06054b50;
const EOCD_LONGEST = 22 + 65_535;
const CENTRAL = 0x02014b50;

/** Names of the files in an archive; null where it is unknown, `whole` is false where the reading was cut. */
export interface Listing {
  readonly paths: readonly string[];
  readonly whole: boolean;
}

export async function listArchive(file: Blob): Promise<Listing | null> {
  const head = new Uint8Array(await file.slice(0, 512).arrayBuffer());
  if (head[0] === 0x50 && head[1] === 0x4b) return listZip(file);
  if (head[0] === 0x1f && head[1] === 0x8b) {
    if (typeof DecompressionStream === "undefined") return null;
    return listTar(file.stream().pipeThrough(new DecompressionStream("gzip")));
  }
  if (decoder.decode(head.subarray(257, 262)) === "ustar") return listTar(file.stream());
  return null;
}

/** A zip's names stand in its central directory, at its end. */
async function listZip(file: Blob): Promise<Listing | null> {
  const start = Math.max(0, file.size - EOCD_LONGEST);
  const end = new DataView(await file.slice(start).arrayBuffer());
  let at = end.byteLength - 22;
  while (at >= 0 && end.getUint32(at, true) !== EOCD) at -= 1;
  if (at < 0) return null;
  const [size, offset] = [end.getUint32(at + 12, true), end.getUint32(at + 16, true)];
  if (offset === 0xffffffff) return null; // zip64
  const central = await file.slice(offset, offset + size).arrayBuffer();
  const view = new DataView(central);
  const paths: string[] = [];
  for (let entry = 0; entry + 46 <= view.byteLength && view.getUint32(entry, true) === CENTRAL; ) {
    const [name, extra, comment] = [28, 30, 32].map((field) => view.getUint16(entry + field, true)) as [number, number, number];
    const path = decoder.decode(new Uint8Array(central, entry + 46, name));
    if (!path.endsWith("/")) paths.push(path);
    entry += 46 + name + extra + comment;
  }
  return { paths, whole: true };
}

/** A tar's names stand before each file; the data between them is read past. */
async function listTar(stream: ReadableStream<Uint8Array>): Promise<Listing> {
  const source = new Source(stream);
  const paths: string[] = [];
  let longName: string | null = null; // the next file's name, where a header of its own says it
  try {
    while (source.read < MOST_UNPACKED) {
      const block = await source.take(BLOCK);
      if (!block || block.every((byte) => byte === 0)) return { paths, whole: true };
      const size = Number.parseInt(field(block, 124, 12) || "0", 8);
      const kind = field(block, 156, 1);
      if (kind === "L" || kind === "x") {
        const data = await source.take(rounded(size));
        longName = (data && nameIn(kind, decoder.decode(data.subarray(0, size)))) ?? longName;
        continue;
      }
      if (kind !== "K" && kind !== "g") {
        const path = (longName ?? ownName(block)).replace(/^(\.\/)+/, "");
        longName = null;
        if (kind !== "5" && path !== "" && !path.endsWith("/")) paths.push(path);
      }
      await source.skip(rounded(size));
    }
    return { paths, whole: false };
  } finally {
    source.close();
  }
}

function ownName(block: Uint8Array): string {
  const prefix = field(block, 257, 6) === "ustar" ? field(block, 345, 155) : "";
  return (prefix ? `${prefix}/` : "") + field(block, 0, 100);
}

/** The name that GNU's header (L) or pax's (x) gives the next file. */
function nameIn(kind: "L" | "x", text: string): string | null {
  return kind === "L" ? text.replace(/\0.*$/s, "") : (/(?:^|\n)\d+ path=([^\n]*)\n/.exec(text)?.[1] ?? null);
}

/** Bytes of a stream, so many at a time. */
class Source {
  /** Bytes that came out of the stream so far. */
  read = 0;
  private waiting: Uint8Array = new Uint8Array(0);
  private readonly reader: ReadableStreamDefaultReader<Uint8Array>;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.reader = stream.getReader();
  }

  /** The next `count` bytes; null: the stream ends before. */
  async take(count: number): Promise<Uint8Array | null> {
    const pieces: Uint8Array[] = [this.waiting];
    let length = this.waiting.length;
    while (length < count) {
      const piece = await this.more();
      if (!piece) return null;
      pieces.push(piece);
      length += piece.length;
    }
    const joined = new Uint8Array(length);
    let at = 0;
    for (const piece of pieces) {
      joined.set(piece, at);
      at += piece.length;
    }
    this.waiting = joined.subarray(count);
    return joined.subarray(0, count);
  }

  /** Let `count` bytes go by. */
  async skip(count: number): Promise<void> {
    let left = count - this.waiting.length;
    this.waiting = this.waiting.subarray(Math.min(count, this.waiting.length));
    while (left > 0) {
      const piece = await this.more();
      if (!piece) return;
      this.waiting = piece.subarray(Math.min(left, piece.length));
      left -= piece.length;
    }
  }

  close(): void {
    void this.reader.cancel().catch(() => undefined);
  }

  private async more(): Promise<Uint8Array | null> {
    const { done, value } = await this.reader.read();
    if (done) return null;
    this.read += value.length;
    return value;
  }
}

const rounded = (size: number): number => Math.ceil(size / BLOCK) * BLOCK;

function field(block: Uint8Array, at: number, length: number): string {
  const text = decoder.decode(block.subarray(at, at + length));
  const end = text.indexOf("\0");
  return (end < 0 ? text : text.slice(0, end)).trim();
}
