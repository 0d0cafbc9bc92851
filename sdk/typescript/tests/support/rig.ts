/** A session with its hub played by the test: time and chance are arguments. */

import assert from "node:assert/strict";

import { encode } from "../../src/codec/index.js";
import { decodeToHub, encodeToAgent, Kind, type FrameToHub, type ToAgent, type ToHub } from "../../src/frames/index.js";
import { Backoff } from "../../src/session/backoff.js";
import { Session } from "../../src/session/index.js";
import { Registration } from "../../src/session/registration.js";
import type { CallEvent, CallSpec, Effect, Input, Outcome } from "../../src/session/types.js";

/** How a rig differs from the usual. */
export interface RigOptions {
  max?: number;
  random?: () => number;
  canPing?: boolean;
  hasStore?: boolean;
}

export const WELCOME: ToAgent[Kind.Welcome] = {
  session: "s",
  hub: "test",
  features: [],
  keepalive_ms: 5000,
  suspect_ms: 15_000,
  gone_ms: 30_000,
  max_message: 1000,
  max_in_flight: 4,
  granted: { provide: ["*"], call: ["*"] },
  warnings: [],
};

export const value = (n: unknown): Uint8Array => encode(n);
export const ok = (n: unknown): Outcome => ({ payload: { bytes: value(n) } });

/** One session in the hands of a test. */
export class Rig {
  now = 0;
  readonly session: Session;
  /** What the session wanted done and nobody asked about yet. */
  private effects: Effect[] = [];

  constructor({ max = 50, random = () => 0.5, canPing = true, hasStore = false }: RigOptions = {}) {
    const registration = new Registration("me", "instance", max);
    this.session = new Session({ registration, backoff: new Backoff(), random, cancelGrace: 5000, hasStore, canPing });
  }

  /** A session that is open, with a capability `work`. */
  static ready(options: RigOptions = {}, welcome: Partial<ToAgent[Kind.Welcome]> = {}): Rig {
    const rig = new Rig(options);
    rig.input({ is: "add", offer: { header: { name: "work" }, most: undefined } });
    rig.input({ is: "start" });
    rig.welcome(welcome);
    rig.sent();
    rig.done();
    return rig;
  }

  input(input: Input): void {
    this.effects.push(...this.session.handle(this.now, input));
  }

  /** The socket opens, and the hub greets. */
  welcome(welcome: Partial<ToAgent[Kind.Welcome]> = {}): void {
    this.input({ is: "opened" });
    this.hub(Kind.Welcome, { ...WELCOME, ...welcome });
  }

  /** The hub sends something. */
  hub<K extends keyof ToAgent>(kind: K, header: ToAgent[K], body?: Uint8Array): void {
    this.input({ is: "message", message: encodeToAgent(kind, header, body) });
  }

  /** The hub gives the agent a call. */
  call(id: number, header: Partial<ToAgent[Kind.Call]> = {}, body = value(null)): void {
    const usual = {
      id,
      request_id: "r",
      call_id: "c",
      capability: "work",
      caller: "you",
      attempt: 1,
      deadline_ms: 30_000,
      stream: false,
      mode: "call" as const,
      priority: "normal" as const,
    };
    this.hub(Kind.Call, { ...usual, ...header }, body);
  }

  lose(code?: number): void {
    this.input({ is: "lost", code, reason: "" });
  }

  /** Asks for `a.b`. */
  open(key: number, spec: Partial<CallSpec> = {}): void {
    const header = { capability: "a.b", ...spec.header };
    this.input({
      is: "open",
      key,
      spec: { budget: undefined, window: undefined, payload: { bytes: value(key) }, ...spec, header },
    });
  }

  /** Lets so much time pass, with every timer on its moment. */
  pass(ms: number): void {
    const end = this.now + ms;
    for (let steps = 0; this.session.nextTimeout <= end; steps++) {
      assert.ok(steps < 10_000, "timers that never end");
      this.now = Math.max(this.now, this.session.nextTimeout);
      this.input({ is: "timeout" });
    }
    this.now = end;
  }

  /** Everything that was written since the last look. */
  sent(): FrameToHub[] {
    const frames: FrameToHub[] = [];
    for (let message = this.session.pop(); message !== undefined; message = this.session.pop()) {
      frames.push(decodeToHub(message));
      this.input({ is: "wrote" });
    }
    return frames;
  }

  /** The headers of one kind that were written since the last look; the others are dropped. */
  sentOf<K extends keyof ToHub>(kind: K): ToHub[K][] {
    return this.sent()
      .filter((frame) => frame.kind === kind)
      .map((frame) => frame.header as ToHub[K]);
  }

  /** What was wanted since the last look. */
  done(): Effect[] {
    return this.effects.splice(0);
  }

  /** What of one kind was wanted since the last look; the others are dropped. */
  doneOf<D extends Effect["do"]>(what: D): Extract<Effect, { do: D }>[] {
    return this.done().filter((effect): effect is Extract<Effect, { do: D }> => effect.do === what);
  }

  /** What callers were told since the last look. */
  told(): [number, CallEvent][] {
    return this.doneOf("tell").map(({ key, event }) => [key, event]);
  }

  /** How a call ended: its code, or `completed`; `undefined` when it did not. */
  endOf(key: number): { code: string; accepted?: string; message?: string } | undefined {
    for (const [own, event] of this.told()) {
      if (own !== key || event.is !== "ended") continue;
      if ("reply" in event.end) return { code: "completed" };
      const { code, accepted, message } = event.end.error;
      return { code, accepted, message };
    }
    return undefined;
  }
}
