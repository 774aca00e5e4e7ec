/** Fewer points with the same outline. Pure. */

/**
 * Indices into `x` to draw, at most about `most`: the first, the last, and of each bucket the lowest and the highest
 * of every column, so that no peak and no gap is lost. All of them where they are few.
 */
export function minMax(x: readonly number[], columns: readonly (readonly (number | null | undefined)[])[], most: number): number[] {
  const count = x.length;
  const perBucket = 2 * Math.max(1, columns.length);
  if (count <= Math.max(most, perBucket + 2)) return Array.from(x.keys());
  const buckets = Math.max(1, Math.floor((most - 2) / perBucket));
  const kept = new Set<number>([0, count - 1]);
  for (let bucket = 0; bucket < buckets; bucket++) {
    const begin = 1 + Math.floor(((count - 2) * bucket) / buckets);
    const end = 1 + Math.floor(((count - 2) * (bucket + 1)) / buckets);
    for (const column of columns) {
      let low = -1;
      let high = -1;
      for (let at = begin; at < end; at++) {
        const value = column[at];
        if (value === null || value === undefined) continue;
        if (low < 0 || value < (column[low] as number)) low = at;
        if (high < 0 || value > (column[high] as number)) high = at;
      }
      // Nothing known in the whole bucket: one of its points stands for the gap.
      kept.add(low < 0 ? begin : low).add(high < 0 ? begin : high);
    }
  }
  return [...kept].sort((one, other) => one - other);
}
