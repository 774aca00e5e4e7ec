/** The code that is handed in: a script, a folder, several files or an archive. */

import { listArchive } from "./listing";
import { gzipped, tar } from "./tar";

/** One file as it was dropped or chosen. */
export interface Dropped {
  /** With the folders it was dropped in: `digits/data/a.npz`. */
  readonly path: string;
  readonly file: File;
}

export interface Code {
  readonly kind: "script" | "folder" | "archive";
  /** The script's, the folder's, the archive's. */
  readonly name: string;
  /** Paths a main script may be chosen from, the likeliest first; as the job sees them. */
  readonly scripts: readonly string[];
  /** False: there may be more files than are listed, so that a name can be typed. */
  readonly whole: boolean;
  /** The folder in which the job starts, inside what is sent; null: at its top. */
  readonly modelDir: string | null;
  readonly files: number;
  readonly bytes: number;
  /** Files that are never code of a job, and stay here. */
  readonly leftOut: number;
  /** Files and folders that lay in no folder of their own, and are sent as one; none otherwise. */
  readonly gathered: readonly string[];
  /** What is sent, and under which name. Packs at the asking. */
  readonly archive: () => Promise<{ readonly data: Blob; readonly name: string }>;
}

/** The same as edt_cli/pack.py leaves out. */
const LEFT_OUT = new Set([".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".DS_Store"]);
const ARCHIVE = /\.(zip|tar|tar\.gz|tgz)$/i;
/** What loose files are sent as. */
const GATHERED = "code";

/** Make code of what was dropped. Throws an Error whose message is fit to be shown. */
export async function codeOf(dropped: readonly Dropped[]): Promise<Code> {
  const kept = dropped.filter(({ path }) => !path.split("/").some((part) => LEFT_OUT.has(part)) && !path.endsWith(".pyc"));
  const [only] = kept;
  if (!only) throw new Error(dropped.length === 0 ? "There is no file in it." : "There is nothing in it but caches and versions.");
  if (kept.length === 1 && !only.path.includes("/")) {
    return ARCHIVE.test(only.path) ? archive(only.file) : script(only.file);
  }
  return folder(kept, dropped.length - kept.length);
}

function script(file: File): Code {
  if (!file.name.endsWith(".py")) {
    throw new Error(`${file.name} is neither a Python script nor a .zip, .tar or .tar.gz.`);
  }
  return {
    kind: "script", name: file.name, scripts: [file.name], whole: true, modelDir: null, files: 1, bytes: file.size, leftOut: 0,
    gathered: [], archive: () => Promise.resolve({ data: file, name: file.name }),
  };
}

function folder(files: readonly Dropped[], leftOut: number): Code {
  const tops = [...new Set(files.map(({ path }) => path.split("/")[0] as string))];
  const loose = tops.length > 1 || files.some(({ path }) => !path.includes("/"));
  const name = loose ? GATHERED : (files[0] as Dropped).path.split("/")[0] as string;
  const inside = files.map(({ path, file }) => ({ path: loose ? path : path.slice(name.length + 1), file }));
  return {
    kind: "folder", name, modelDir: name, scripts: likeliest(inside.map((each) => each.path)), whole: true, files: files.length,
    bytes: files.reduce((sum, { file }) => sum + file.size, 0), leftOut, gathered: loose ? tops : [],
    archive: async () => {
      const packed = inside.map(({ path, file }) => ({ path: `${name}/${path}`, data: file, modified: file.lastModified }));
      return { data: await gzipped(tar(packed)), name: `${name}.tar.gz` };
    },
  };
}

async function archive(file: File): Promise<Code> {
  const listing = await listArchive(file).catch(() => null);
  const paths = listing?.paths ?? [];
  if (listing && listing.whole && paths.length === 0) throw new Error(`${file.name} is empty.`);
  const tops = new Set(paths.map((path) => (path.includes("/") ? path.split("/")[0] : "")));
  const [top] = tops;
  const modelDir = tops.size === 1 && top && listing?.whole ? top : null;
  const inside = modelDir ? paths.map((path) => path.slice(modelDir.length + 1)) : paths;
  return {
    kind: "archive", name: file.name, scripts: likeliest(inside), whole: listing?.whole ?? false, modelDir, files: paths.length,
    bytes: file.size, leftOut: 0, gathered: [], archive: () => Promise.resolve({ data: file, name: file.name }),
  };
}

/** Python files, those at the top first, main.py and train.py before the others. */
export function likeliest(paths: readonly string[]): string[] {
  const rank = (path: string): number => {
    const at = ["main.py", "train.py", "__main__.py"].indexOf(path.split("/").at(-1) ?? "");
    return path.split("/").length * 10 + (at < 0 ? 5 : at);
  };
  return paths.filter((path) => path.endsWith(".py")).sort((one, other) => rank(one) - rank(other) || (one < other ? -1 : 1));
}
