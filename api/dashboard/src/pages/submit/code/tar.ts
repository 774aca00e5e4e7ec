/** Packing files into a tar in the browser. Reads no file: a Blob is made of their Blobs. */

const BLOCK = 512;
const encoder = new TextEncoder();

export interface Packed {
  /** Inside the archive, with `/`. */
  readonly path: string;
  readonly data: Blob;
  /** Milliseconds since the epoch. */
  readonly modified?: number;
}

/** A tar of these files, in the order of their paths; names of any length and letter (pax). */
export function tar(files: readonly Packed[]): Blob {
  const parts: BlobPart[] = [];
  for (const file of [...files].sort((one, other) => (one.path < other.path ? -1 : 1))) {
    const name = encoder.encode(file.path);
    if (name.length > 100 || file.path.length !== name.length) {
      const record = pax("path", file.path);
      parts.push(header("pax_header", record.length, "x", 0), record, padding(record.length));
    }
    parts.push(header(file.path, file.data.size, "0", file.modified ?? 0), file.data, padding(file.data.size));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/x-tar" });
}

/** The same through gzip, where the browser can. */
export async function gzipped(archive: Blob): Promise<Blob> {
  if (typeof CompressionStream === "undefined") return archive;
  return new Response(archive.stream().pipeThrough(new CompressionStream("gzip"))).blob();
}

function header(path: string, size: number, kind: "0" | "x", modified: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  block.set(encoder.encode(path).subarray(0, 100), 0);
  const field = (at: number, width: number, value: number): void =>
    block.set(encoder.encode(`${value.toString(8).padStart(width - 1, "0")}\0`), at);
  field(100, 8, 0o644);
  field(108, 8, 0);
  field(116, 8, 0);
  field(124, 12, size);
  field(136, 12, Math.max(0, Math.floor(modified / 1000)));
  block.fill(0x20, 148, 156); // the checksum counts its own field as blanks
  block.set(encoder.encode(kind), 156);
  block.set(encoder.encode("ustar\x0000"), 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.set(encoder.encode(`${sum.toString(8).padStart(6, "0")}\0 `), 148);
  return block;
}

/** `<length> key=value\n`, where the length counts itself. */
function pax(key: string, value: string): Uint8Array<ArrayBuffer> {
  const rest = encoder.encode(` ${key}=${value}\n`);
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  const record = new Uint8Array(length);
  record.set(encoder.encode(String(length)), 0);
  record.set(rest, length - rest.length);
  return record;
}

const padding = (size: number): Uint8Array<ArrayBuffer> => new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
