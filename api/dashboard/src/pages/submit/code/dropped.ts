/** The files of a drop, folders and all. */

import type { Dropped } from "./code";

/** More files than this are no code: somebody dropped a data set, or the home folder. */
export const MOST_FILES = 20_000;

/** Must be called in the drop's own event: its items are gone afterwards. */
export async function droppedFiles(transfer: DataTransfer): Promise<Dropped[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.() ?? null);
  const found: Dropped[] = [];
  if (entries.some((entry) => entry !== null)) {
    for (const entry of entries) if (entry) await walk(entry, "", found);
    return found;
  }
  return chosenFiles(transfer.files);
}

/** The files of an input, which tells folders in `webkitRelativePath`. */
export function chosenFiles(files: FileList): Dropped[] {
  return [...files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

async function walk(entry: FileSystemEntry, above: string, found: Dropped[]): Promise<void> {
  const path = above + entry.name;
  if (entry.isFile) {
    if (found.length >= MOST_FILES) throw new Error(`There are more than ${MOST_FILES} files in it: drop the code alone, data lies on the platform's own disk.`);
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    found.push({ path, file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    // A reader gives a hundred at a time, and none at the end.
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return;
    for (const each of some) await walk(each, `${path}/`, found);
  }
}
