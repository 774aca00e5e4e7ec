/** Do a thing at once and then, however often it is asked for, at most once a while; the last asking counts. */

export class Throttle {
  #waiting = new Map<string, { timer: ReturnType<typeof setTimeout>; again: (() => void) | null }>();

  constructor(readonly milliseconds: number) {}

  run(name: string, task: () => void): void {
    const waiting = this.#waiting.get(name);
    if (waiting) {
      waiting.again = task;
      return;
    }
    task();
    this.#rest(name);
  }

  clear(): void {
    for (const { timer } of this.#waiting.values()) clearTimeout(timer);
    this.#waiting.clear();
  }

  #rest(name: string): void {
    const timer = setTimeout(() => {
      const again = this.#waiting.get(name)?.again ?? null;
      this.#waiting.delete(name);
      if (again) this.run(name, again);
    }, this.milliseconds);
    this.#waiting.set(name, { timer, again: null });
  }
}
