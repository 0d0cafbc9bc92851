/** What an agent says of itself besides what the SDK counts. */

import type { OwnLoad } from "../session/types.js";
import type { Environment } from "../transport/index.js";

/** How often the hook is asked, in milliseconds: before each heartbeat. */
const ASK_MS = 2500;

/** What an agent says of its load. Shares are 0 to 1. */
export interface LoadReport {
  /** Calls that wait in the agent; absent: what the SDK counts. */
  queued?: number;
  /** Share of the processor. */
  cpu?: number;
  /** Share of the memory. */
  memory?: number;
  /** 0 to 100; below 60 the agent is out of routing. */
  health?: number;
  /** Fill of single capabilities. */
  levels?: Record<string, number>;
}

/** What a health hook gives: whether all is well, a health of 0 to 100, or more. */
export type HealthReport = boolean | number | LoadReport;

/** Within what the wire takes, in steps of which `scale` make 1. */
const clamp = (n: number | undefined, most: number, scale: number): number | undefined =>
  n === undefined ? undefined : Math.round(Math.min(Math.max(n || 0, 0), most) * scale) / scale;

/** The program's own figures, with those of its hook over them. */
export class Health {
  #own: LoadReport = {};
  #asked: LoadReport = {};
  #said = "{}";
  #cancel: (() => void) | undefined;
  #isAsking = false;

  readonly #environment: Environment;

  readonly #hook: (() => HealthReport | Promise<HealthReport>) | undefined;
  readonly #say: (load: OwnLoad) => void;

  constructor(
    environment: Environment,
    hook: (() => HealthReport | Promise<HealthReport>) | undefined,
    say: (load: OwnLoad) => void,
  ) {
    this.#hook = hook;
    this.#say = say;
    this.#environment = environment;
  }

  start(): void {
    if (this.#hook !== undefined) this.#ask(this.#hook);
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#isAsking = true;
  }

  set(load: LoadReport): void {
    this.#own = load;
    this.#tell();
  }

  #ask(hook: () => HealthReport | Promise<HealthReport>): void {
    this.#cancel = this.#environment.timer(ASK_MS, () => this.#ask(hook));
    // One that takes its time is not asked twice; its last answer holds.
    if (this.#isAsking) return;
    this.#isAsking = true;
    void this.#answer(hook);
  }

  async #answer(hook: () => HealthReport | Promise<HealthReport>): Promise<void> {
    let report: HealthReport;
    try {
      report = await hook();
    } catch {
      report = 0;
    }
    if (this.#cancel === undefined) return;
    this.#isAsking = false;
    if (typeof report === "object") this.#asked = report;
    else this.#asked = { health: typeof report === "number" ? report : report ? 100 : 0 };
    this.#tell();
  }

  #tell(): void {
    const { queued, cpu, memory, health, levels } = { ...this.#own, ...this.#asked };
    const load: OwnLoad = {
      queued: clamp(queued, 1e9, 1),
      cpu: clamp(cpu, 1, 100),
      memory: clamp(memory, 1, 100),
      health: clamp(health, 100, 1),
      levels: levels && Object.entries(levels).map(([name, fill]) => [name, clamp(fill, 1, 100)!]),
    };
    const said = JSON.stringify(load);
    if (said === this.#said) return;
    this.#said = said;
    this.#say(load);
  }
}
