/** What the agent says of itself: HELLO, and UPDATE when it changes. */

import { encodeToHub, Kind, type LoadHeader, type Pairs, type Status, type Update } from "../frames/index.js";
import { VERSION } from "../limits.js";
import type { Offer, OwnLoad } from "./types.js";

const SDK = "typescript/0.1.0";

/** What the agent has to do now, in calls. */
export interface Work {
  running: number;
  waiting: number;
}

/** Everything that a new session must know before the agent counts as ready, whatever was changed since the first. */
export class Registration {
  readonly offers = new Map<string, Offer>();
  status: Status | undefined;
  load: OwnLoad = {};

  readonly #more: {
    service?: string | undefined;
    version?: string | undefined;
    labels?: Pairs | undefined;
    calls?: string[] | undefined;
  };

  constructor(
    readonly agentId: string,
    /** Random id of this life of the program. */
    readonly instance: string,
    readonly maxConcurrency: number,
    more: {
      service?: string | undefined;
      version?: string | undefined;
      labels?: Pairs | undefined;
      calls?: string[] | undefined;
    } = {},
  ) {
    this.#more = more;
  }

  hello(work: Work): Uint8Array {
    return encodeToHub(Kind.Hello, {
      v: VERSION,
      agent_id: this.agentId,
      instance: this.instance,
      service: this.#more.service,
      version: this.#more.version,
      sdk: SDK,
      features: [],
      capabilities: [...this.offers.values()].map((offer) => offer.header),
      labels: this.#more.labels ?? [],
      max_concurrency: this.maxConcurrency,
      calls: this.#more.calls,
      status: this.status,
      load: this.#loadOf(work),
    });
  }

  /** A heartbeat, with what changed. */
  update(work: Work, change: Omit<Update, "load"> = {}): Uint8Array {
    return encodeToHub(Kind.Update, { ...change, load: this.#loadOf(work) });
  }

  #loadOf({ running, waiting }: Work): LoadHeader {
    const queued = this.load.queued ?? (waiting > 0 ? waiting : undefined);
    return { ...this.load, in_flight: running, queued };
  }
}
