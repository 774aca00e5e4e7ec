/** Lists that come in pages, read to their end. */

import type { Page } from "./types";

/** So many items of a list are asked for at once; the API gives no more. */
const PAGE = 500;

/** All pages of a list, or the first `most` of them; `cut`: there are more. */
export async function everyPage<T>(
  fetchPage: (cursor: string | null) => Promise<Page<T>>,
  most = Infinity,
): Promise<{ items: T[]; cut: boolean }> {
  const items: T[] = [];
  let cursor: string | null = null;
  for (let count = 0; count < most; count += 1) {
    const page: Page<T> = await fetchPage(cursor);
    items.push(...page.items);
    cursor = page.next ?? null;
    if (cursor === null) return { items, cut: false };
  }
  return { items, cut: true };
}

/** What asks for the page that begins at a cursor. */
export function at(cursor: string | null): { limit: number; cursor?: string } {
  return { limit: PAGE, ...(cursor !== null && { cursor }) };
}
