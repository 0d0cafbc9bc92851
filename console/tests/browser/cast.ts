/** Agents at work: what a small team's hub looks like. */

import { HandlerError, type Agent, type PendingCall } from "@agent-reach/client/node";

import type { Hub } from "./hub.ts";

/** What would be a script if it became markup. */
export const MARKUP = `<img src=x onerror="window.__x=1"><script>window.__x=2</script>`;

const TEXT = {
  type: "object",
  required: ["text"],
  properties: {
    text: { type: "string", description: "What to look at", minLength: 1 },
    language: { enum: ["en", "de", "fr"], default: "en" },
    words: { type: "integer", minimum: 1, maximum: 500 },
    tags: { type: "array", items: { type: "string" }, maxItems: 5 },
  },
};
const SUMMARY = { type: "object", required: ["summary"], properties: { summary: { type: "string" }, words: { type: "integer" } } };

/** Those who act, until the hub stops. */
export interface Cast {
  summarizer: Agent;
  writer: Agent;
  planner: Agent;
  trickster: Agent;
  /** Ends what has no end of its own. */
  release: () => void;
}

/** Waits for a turn of the event loop: handlers that are quick, and still not at once. */
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

/** Everybody, connected and known to the hub. */
export async function cast(hub: Hub): Promise<Cast> {
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  const summarizer = await hub.agent("summarizer-1", {
    service: "text",
    version: "2.3.1",
    labels: { region: "eu-1", tier: "gold" },
    maxConcurrency: 8,
  });
  const second = await hub.agent("summarizer-2", { service: "text", version: "2.3.0", labels: { region: "us-1" }, maxConcurrency: 8 });
  for (const agent of [summarizer, second])
    agent.provide<{ text: string }>("text.summarize", (ctx) => ({ summary: ctx.input.text.slice(0, 40), words: 7 }), {
      description: "Says a text in fewer words",
      version: "2.1.0",
      idempotent: true,
      input: TEXT,
      output: SUMMARY,
    });
  const writer = await hub.agent("writer-1", { service: "story", version: "0.9.2", labels: { region: "eu-1" }, maxConcurrency: 4 });
  writer.provide<{ pieces?: number } | null>(
    "story.write",
    async (ctx) => {
      const pieces = ctx.input?.pieces ?? 3;
      for (let piece = 0; piece < pieces && !ctx.isCancelled; piece += 1) {
        await ctx.emit({ piece, text: `part ${piece} of a story` });
        await turn();
      }
      return { pieces };
    },
    { description: "Writes a story, piece by piece", input: { type: "object", properties: { pieces: { type: "integer", default: 3 } } } },
  );
  writer.provide("report.build", () => released.then(() => ({ pages: 12 })), { description: "Takes as long as it takes", timeoutMs: 3_600_000 });
  const trickster = await hub.agent("trickster", { service: MARKUP, version: "1", labels: { note: MARKUP } });
  trickster.provide(
    "image.classify",
    () => {
      throw new HandlerError("no-model", MARKUP, { retryable: false, details: { said: MARKUP } });
    },
    { description: MARKUP, input: { type: "object", title: MARKUP, properties: { [MARKUP]: { type: "string", description: MARKUP } } } },
  );
  trickster.provide("image.caption", () => ({ caption: MARKUP }), { description: "Says what is on a picture" });
  const planner = await hub.agent("planner-1", { service: "planner", version: "4.0.0" });
  await Promise.all([summarizer, second, writer, trickster, planner].map((agent) => agent.sync()));
  return { summarizer, writer, planner, trickster, release };
}

/** A bit of everything: calls that go well, that fail, streams and tasks. */
export async function act({ planner }: Cast, rounds = 20): Promise<void> {
  const quietly = (work: PendingCall<unknown>): Promise<unknown> => work.catch(() => undefined);
  for (let round = 0; round < rounds; round += 1) {
    const text = `The hub carried ${round} calls, and nobody was lost on the way`;
    await planner.call("text.summarize", { text });
    if (round % 4 === 0) await quietly(planner.call("image.classify", {}));
    if (round % 5 === 0) await planner.call("image.caption", {});
    if (round % 3 === 0) for await (const _ of planner.stream("story.write", { pieces: 4 }));
    if (round % 10 === 0) await quietly(planner.call("audio.transcribe", {}));
  }
}
