import type { Acceptance, Attempt, CallError, CallOptions, CallStream, PendingCall } from "@agent-reach/client";
import { signal } from "@preact/signals";

import { Ring } from "../state/ring.ts";
import { link } from "./link.ts";
import { failure } from "./query.ts";

/** Pieces of a stream that are kept. */
export const PIECES_MAX = 500;

/** One piece as it came. */
export interface Piece {
  seq: number;
  at: number;
  value: unknown;
}

/** How a trial stands. */
export type TrialState =
  | { is: "idle" }
  | { is: "running"; since: number; accepted?: Acceptance }
  | {
      is: "done";
      ms: number;
      body: unknown;
      callId: string | undefined;
      target: string | undefined;
      route: string | undefined;
      attempts: readonly Attempt[];
    }
  | { is: "failed"; ms: number; error: CallError };

/** A call that a person makes from a form. */
export class Trial {
  readonly state = signal<TrialState>({ is: "idle" });
  /** Counts pieces; they come faster than they can be drawn. */
  readonly pieces = signal(0);
  readonly ring = new Ring<Piece>(PIECES_MAX);
  #call: PendingCall<unknown> | CallStream<unknown, unknown> | undefined;
  #count = 0;
  #drawing = false;

  /** Makes the call; one that runs is cancelled. */
  async run(capability: string, body: unknown, wantsStream: boolean, options: CallOptions): Promise<void> {
    this.cancel();
    const { agent } = link;
    if (agent === undefined) return;
    this.ring.clear();
    this.#count = 0;
    this.pieces.value = 0;
    const since = performance.now();
    this.state.value = { is: "running", since };
    const call = wantsStream ? agent.stream(capability, body, options) : agent.call(capability, body, options);
    this.#call = call;
    const isCurrent = (): boolean => this.#call === call;
    call.accepted().then(
      (accepted) => {
        if (isCurrent() && accepted !== undefined && this.state.value.is === "running")
          this.state.value = { is: "running", since, accepted };
      },
      () => undefined,
    );
    try {
      if ("next" in call) for await (const value of call) this.#piece(value);
      const { body: result, callId, target, route, attempts } = await call.reply();
      const ms = performance.now() - since;
      if (isCurrent()) this.state.value = { is: "done", ms, body: result, callId, target, route, attempts };
    } catch (error) {
      if (isCurrent()) this.state.value = { is: "failed", ms: performance.now() - since, error: failure(error) };
    }
    if (isCurrent()) this.pieces.value = this.#count;
  }

  #piece(value: unknown): void {
    this.ring.push({ seq: this.#count, at: Date.now(), value });
    this.#count += 1;
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.pieces.value = this.#count;
    });
  }

  /** Nobody wants it any more: its agent is told. */
  cancel(): void {
    if (this.state.value.is === "running") this.#call?.cancel();
  }
}
