import type { JSX } from "preact";

import { world } from "../hub/link.ts";
import { useQuery } from "../hub/query.ts";
import { to } from "../router.ts";
import { useVersion } from "../state/frame.ts";
import type { Candidates, Step, Trace } from "../state/views.ts";
import { AgentLink, CapabilityLink, Fact, Facts, OneHead } from "../ui/facts.tsx";
import { count, micros, millis, time } from "../ui/format.ts";
import { Empty, Failed, Loading } from "../ui/states.tsx";
import { Outcome } from "../ui/status.tsx";
import { lanesOf, STEPS } from "./lanes.ts";

/** Why an agent was passed over, in the words of docs/routing.md. */
const REASONS: Record<string, string> = {
  away: "no connection, and may come back",
  suspect: "silent for too long",
  draining: "said that it drains",
  unhealthy: "reported a health below 60",
  labels: "lacks a label that is required",
  version: "offers no version in the range",
  not_offered: "does not offer it",
  forbidden: "offers it under a name that the caller may not call",
  input_schema: "has an input schema that the body does not fit",
  output_schema: "does not promise what is expected",
  tripped: "its breaker is open",
  rate_limited: "has reached its rate limit",
  busy: "has all its slots taken",
  tried: "failed this call before",
};

/** Steps that are listed. */
const SHOWN = 256;

function Chosen({ candidates }: { candidates: Candidates }): JSX.Element {
  const { policy, offering, able, excluded } = candidates;
  return (
    <span class="candidates">
      {count(able)} of {count(offering)} able, <span class="mono">{policy}</span>
      {Object.entries(excluded).map(([why, number]) => (
        <span key={why} class="tag" title={REASONS[why]}>
          {count(number)} {why}
        </span>
      ))}
    </span>
  );
}

function Lanes({ steps }: { steps: Step[] }): JSX.Element | null {
  const { lanes, total } = lanesOf(steps);
  if (lanes.length === 0) return null;
  const left = (at: number): string => `${((at / total) * 100).toFixed(3)}%`;
  return (
    <div class="lanes">
      <div class="lane-scale" aria-hidden="true">
        {[0, 0.25, 0.5, 0.75, 1].map((share) => (
          <span key={share}>{micros(total * share)}</span>
        ))}
      </div>
      {lanes.slice(0, 40).map((lane, at) => (
        <div key={at} class="lane">
          <span class="lane-name mono">
            {lane.name} <span class="of">{lane.note}</span>
          </span>
          <span class="lane-track" role="img" aria-label={lane.parts.map((part) => part.says).join("; ")}>
            {lane.parts.map((part, index) => (
              <span
                key={index}
                class={`part ${part.kind}`}
                title={part.says}
                style={{ left: left(part.from), width: left(part.to - part.from) }}
              />
            ))}
          </span>
        </div>
      ))}
      <ul class="legend">
        <li class="legend-item waits">waiting</li>
        <li class="legend-item accept">until accepted</li>
        <li class="legend-item process">at work</li>
        <li class="legend-item chunk">first piece</li>
      </ul>
    </div>
  );
}

function StepRow({ step, before }: { step: Step; before: number }): JSX.Element {
  return (
    <tr class={step.outcome !== undefined && step.outcome !== "completed" ? "failed" : ""}>
      <td class="number mono">{micros(step.at_us)}</td>
      <td class="number mono of">+{micros(step.at_us - before)}</td>
      <td>{STEPS[step.step] ?? step.step}</td>
      <td>
        {step.target === undefined ? null : <AgentLink id={step.target} />}
        {step.attempt === undefined ? null : <span class="of"> try {step.attempt}</span>}
      </td>
      <td>
        {step.candidates === undefined ? null : <Chosen candidates={step.candidates} />}
        {step.outcome === undefined ? null : <Outcome outcome={step.outcome} />}
        {step.reason}
      </td>
    </tr>
  );
}

function Timeline({ trace }: { trace: Trace }): JSX.Element {
  const { steps } = trace;
  return (
    <section class="panel">
      <h2>Timeline</h2>
      <Lanes steps={steps} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Steps">
        <table class="plain steps">
          <thead>
            <tr>
              <th class="number">At</th>
              <th class="number">After</th>
              <th>Step</th>
              <th>Agent</th>
              <th>Decision and reason</th>
            </tr>
          </thead>
          <tbody>
            {steps.slice(0, SHOWN).map((step, at) => (
              <StepRow key={at} step={step} before={steps[at - 1]?.at_us ?? 0} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function About({ id, trace }: { id: string; trace: Trace | undefined }): JSX.Element | null {
  const row = world.calls.get(id);
  if (row === undefined && trace === undefined) return null;
  const { caller, capability, request_id: request } = row?.view ?? trace!;
  const outcome = row?.outcome ?? trace?.steps.findLast((step) => step.step === "ended")?.outcome;
  return (
    <section class="panel">
      <Facts>
        <Fact name="Outcome">
          <Outcome outcome={outcome} {...(row === undefined ? {} : { state: row.view.state })} />
        </Fact>
        <Fact name="Capability">
          <CapabilityLink name={capability} />
        </Fact>
        <Fact name="Caller">
          <AgentLink id={caller} />
        </Fact>
        {row === undefined || row.view.targets.length === 0 ? null : (
          <Fact name="Targets">
            {row.view.targets.slice(0, 20).map((target) => (
              <span key={target} class="spaced">
                <AgentLink id={target} />
              </span>
            ))}
          </Fact>
        )}
        <Fact name="Request" hint="One intent of the caller: the same id is the same call">
          <span class="mono">{request}</span>
        </Fact>
        {row === undefined ? null : (
          <>
            <Fact name="Began">
              <span class="mono">{time(row.began)}</span>
            </Fact>
            {row.view.state === "refused" ? (
              <Fact name="Took">refused at once</Fact>
            ) : (
              <>
                <Fact name="Took">{row.ms === undefined ? "still open" : millis(row.ms)}</Fact>
                <Fact name="Mode">{row.view.stream ? `${row.view.mode}, stream` : row.view.mode}</Fact>
              </>
            )}
          </>
        )}
      </Facts>
    </section>
  );
}

/** One call, from its route decision to its end. */
export function CallPage({ id }: { id: string }): JSX.Element {
  // Drawn anew when the call ends; an ended one's trace does not change.
  useVersion("calls");
  const kept = world.traces.get(id);
  const [answer, again] = useQuery<{ trace: Trace }>("hub.traces.get", kept === undefined ? { call_id: id } : undefined, 1000);
  const trace = kept ?? (answer.is === "loading" ? undefined : answer.value?.trace);
  if (trace?.ended === true && kept === undefined) world.traces.put(trace);
  const isUnknown = answer.is === "failed" && answer.error.code === "invalid_request";
  return (
    <>
      <OneHead up={[to("calls"), "Calls"]} title={id} />
      <div class="stack">
        <About id={id} trace={trace} />
        {trace !== undefined ? (
          <Timeline trace={trace} />
        ) : isUnknown ? (
          <Empty title="The hub has no trace of this call">
            It keeps those of the newest calls that ended; a busy hub’s go soon. They do not outlive a restart.
          </Empty>
        ) : answer.is === "failed" ? (
          <Failed error={answer.error} onRetry={again} />
        ) : (
          <Loading what="the trace" />
        )}
      </div>
    </>
  );
}
