import { signal, type Signal } from "@preact/signals";

import type { Topic } from "./world.ts";

/**
 * How often what changes is shown, in milliseconds at least. People read no faster, and a table that is drawn for each
 * of a thousand events a second would leave the browser nothing else to do.
 */
const PAUSE: Record<Topic, number> = { agents: 1000, calls: 333, tasks: 333, stats: 0 };

/** Counters that components read to be drawn anew; the state itself is in the world. */
export const versions: Record<Topic, Signal<number>> = {
  agents: signal(0),
  calls: signal(0),
  tasks: signal(0),
  stats: signal(0),
};

/** Has the component that asks drawn anew when something of this kind is to be shown. */
export function useVersion(topic: Topic): number {
  return versions[topic].value;
}

const shown: Record<Topic, number> = { agents: 0, calls: 0, tasks: 0, stats: 0 };
const dirty = new Set<Topic>();
let timer: ReturnType<typeof setTimeout> | undefined;

function show(): void {
  timer = undefined;
  const now = performance.now();
  for (const topic of [...dirty]) {
    if (now - shown[topic] < PAUSE[topic]) continue;
    dirty.delete(topic);
    shown[topic] = now;
    versions[topic].value += 1;
  }
  if (dirty.size > 0) schedule();
}

function schedule(): void {
  if (timer !== undefined) return;
  const now = performance.now();
  const wait = Math.min(...[...dirty].map((topic) => shown[topic] + PAUSE[topic] - now));
  // A hidden page has no frames: it is drawn when it is shown again, and the state goes on meanwhile.
  timer = setTimeout(() => requestAnimationFrame(show), Math.max(0, wait));
}

/** Something of this kind has changed: whoever shows it looks again, in the next frame that it may. */
export function touch(topic: Topic): void {
  dirty.add(topic);
  schedule();
}

/** Shows at once what has changed: for what a person did. */
export function touchNow(topic: Topic): void {
  shown[topic] = 0;
  touch(topic);
}

/** The time, once a second while the page is shown: what ages are counted with. */
export const clock = signal(Date.now());
setInterval(() => {
  if (!document.hidden) clock.value = Date.now();
}, 1000);
