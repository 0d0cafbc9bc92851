import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { isOperator, link, world } from "../hub/link.ts";
import { useQuery } from "../hub/query.ts";
import { to } from "../router.ts";
import type { CallRow } from "../state/calls.ts";
import { clock, useVersion } from "../state/frame.ts";
import { Ring } from "../state/ring.ts";
import type { AgentDetails, OpenLeg } from "../state/views.ts";
import { Chart, type Line } from "../ui/chart.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { AgentLink, CapabilityLink, Fact, Facts, OneHead } from "../ui/facts.tsx";
import { count, micros, millis, share, span } from "../ui/format.ts";
import { Empty, Failed, Loading } from "../ui/states.tsx";
import { AgentStatus } from "../ui/status.tsx";
import { CallLine } from "./lines.tsx";

/** How often the agent is looked at, and how many looks are kept. */
const LOOK_MS = 1000;
const LOOKS = 600;
/** Ended calls that are listed. */
const RECENT = 30;

interface Look {
  at: number;
  latency: number;
  taken: number;
  queued: number | undefined;
}

const LATENCY: Line[] = [{ label: "latency", colour: "--accent", isFilled: true }];
const BACKLOG: Line[] = [
  { label: "slots taken", colour: "--accent", isFilled: true },
  { label: "queued at the agent", colour: "--warn", dash: [4, 3] },
];

function Charts({ agent }: { agent: AgentDetails }): JSX.Element {
  const looks = useRef(new Ring<Look>(LOOKS)).current;
  const data = useMemo(() => {
    const { latency_us: latency, in_flight: taken, load } = agent;
    looks.push({ at: Date.now() / 1000, latency, taken, queued: load.queued });
    const all = [...looks].reverse();
    const at = all.map((look) => look.at);
    return {
      latency: [at, all.map((look) => look.latency)],
      backlog: [at, all.map((look) => look.taken), all.map((look) => look.queued)],
    };
  }, [agent]);
  return (
    <div class="columns">
      <Chart
        title="Latency"
        note="The hub’s moving average from CALL to RESULT, since this page is open."
        lines={LATENCY}
        data={data.latency}
        format={micros}
      />
      <Chart title="Backlog" lines={BACKLOG} data={data.backlog} format={count} unit="whole" />
    </div>
  );
}

function OpenCalls({ calls }: { calls: OpenLeg[] }): JSX.Element {
  return (
    <section class="panel">
      <h2>Open calls ({count(calls.length)})</h2>
      {calls.length === 0 ? <p class="quiet-line">It works on nothing at present.</p> : null}
      <ul class="lines">
        {calls.slice(0, 100).map((leg, at) => (
          <li key={leg.call_id ?? at}>
            <span class="grow">
              {leg.call_id === null ? (
                <span class="mono">{leg.capability}</span>
              ) : (
                <a class="mono" href={to("calls", leg.call_id)}>
                  {leg.capability}
                </a>
              )}
            </span>
            <span>{leg.state}</span>
            {leg.caller === null ? null : <AgentLink id={leg.caller} />}
            {leg.attempt > 1 ? <span class="tag">try {leg.attempt}</span> : null}
            <span class="number">{millis(leg.age_ms)}</span>
          </li>
        ))}
      </ul>
      {calls.length > 100 ? <p class="note">The first 100 are shown.</p> : null}
    </section>
  );
}

function recentOf(id: string): CallRow[] {
  const found: CallRow[] = [];
  for (const row of world.calls.ended) {
    if (row.view.caller !== id && !row.view.targets.includes(id)) continue;
    found.push(row);
    if (found.length >= RECENT) break;
  }
  return found;
}

function Recent({ id }: { id: string }): JSX.Element {
  const version = useVersion("calls");
  const rows = useMemo(() => recentOf(id), [version, id]);
  return (
    <section class="panel">
      <h2>
        Recent calls <a href={to("calls", undefined, { q: id })}>all</a>
      </h2>
      {rows.length === 0 ? <p class="quiet-line">None ended here while this page was open.</p> : null}
      <ul class="lines">
        {rows.map((row) => (
          <CallLine key={row.id} row={row} from={id} />
        ))}
      </ul>
    </section>
  );
}

function Offers({ agent }: { agent: AgentDetails }): JSX.Element {
  return (
    <section class="panel">
      <h2>Capabilities ({count(agent.offers.length)})</h2>
      {agent.offers.length === 0 ? <p class="quiet-line">It offers nothing, and only calls.</p> : null}
      <ul class="lines offers">
        {agent.offers.map((offer) => (
          <li key={offer.name}>
            <span class="grow">
              <CapabilityLink name={offer.name ?? ""} /> <span class="of">{offer.version}</span>
              {offer.description === undefined ? null : <span class="said">{offer.description}</span>}
            </span>
            {offer.idempotent ? <span class="tag">idempotent</span> : null}
            {offer.qps_limit === undefined ? null : <span class="tag">{offer.qps_limit}/s</span>}
            {offer.timeout_ms === undefined ? null : <span class="number">{span(offer.timeout_ms)}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function About({ agent, at }: { agent: AgentDetails; at: number }): JSX.Element {
  const age = clock.value - at;
  const { cpu, memory, health, queued, levels } = agent.load;
  return (
    <section class="panel">
      <Facts>
        <Fact name="Status">
          <AgentStatus status={agent.status} /> {agent.drained === true ? <span class="tag">by an operator</span> : null}
        </Fact>
        <Fact name="Identity">
          <span class="mono">{agent.identity}</span>
        </Fact>
        <Fact name="Service">{agent.service === undefined ? "–" : `${agent.service} ${agent.version ?? ""}`}</Fact>
        <Fact name="SDK">{agent.sdk ?? "–"}</Fact>
        <Fact name="Instance" hint="One life of its process">
          <span class="mono">{agent.instance}</span>
        </Fact>
        <Fact name="Connected">{span(agent.connected_ms + Math.max(0, age))}</Fact>
        <Fact name="Last seen">{agent.last_seen_ms === null ? "away" : `${span(agent.last_seen_ms)} ago`}</Fact>
        <Fact name="Slots">
          {count(agent.in_flight)} of {count(agent.max_concurrency)}
        </Fact>
        <Fact name="Calls ended">
          {count(agent.completed)} well, {count(agent.failed)} failed
        </Fact>
        <Fact name="Health">{health === undefined ? "not reported" : `${health} of 100`}</Fact>
        <Fact name="CPU, memory">{cpu === undefined && memory === undefined ? "not reported" : `${share(cpu)}, ${share(memory)}`}</Fact>
        <Fact name="Queued">{queued === undefined ? "not reported" : count(queued)}</Fact>
        {Object.entries(levels ?? {}).map(([name, level]) => (
          <Fact key={name} name={`Level of ${name}`}>
            {share(level)}
          </Fact>
        ))}
        {Object.keys(agent.labels).length === 0 ? null : (
          <Fact name="Labels">
            {Object.entries(agent.labels).map(([key, value]) => (
              <span key={key} class="tag">
                {key}={value}
              </span>
            ))}
          </Fact>
        )}
      </Facts>
    </section>
  );
}

/** What an operator may do to an agent. */
function Acts({ agent, again }: { agent: AgentDetails; again: () => void }): JSX.Element {
  const id = agent.agent_id;
  const drain = (draining: boolean): Promise<void> =>
    link.call("hub.agents.drain", { agent_id: id, draining }).then(again);
  return (
    <>
      {agent.drained === true ? (
        <Confirm act="Give back to work" title={`Give ${id} back to work?`} run={() => drain(false)}>
          The hub routes new calls to it again, if it is ready.
        </Confirm>
      ) : (
        <Confirm act="Drain" title={`Drain ${id}?`} run={() => drain(true)}>
          It ends the {count(agent.in_flight)} calls that it has and gets no new ones, until it is given back or its process
          begins anew.
        </Confirm>
      )}
      <Confirm act="Disconnect" title={`Disconnect ${id}?`} run={() => link.call("hub.agents.disconnect", { agent_id: id })}>
        The hub closes its connection and tells it to come back. Calls that it has are settled as if it had been lost.
      </Confirm>
    </>
  );
}

/** One agent. */
export function AgentPage({ id }: { id: string }): JSX.Element {
  const [answer, again] = useQuery<{ agent: AgentDetails }>("hub.agents.get", { agent_id: id }, LOOK_MS);
  const [at, setAt] = useState(Date.now());
  useEffect(() => setAt(Date.now()), [answer]);
  const agent = answer.is === "loading" ? undefined : answer.value?.agent;
  const isGone = answer.is === "failed" && answer.error.code === "invalid_request";
  const isThere = agent !== undefined && !isGone && agent.status !== "away";
  return (
    <>
      <OneHead up={[to("agents"), "Agents"]} title={id}>
        {isOperator() && isThere && link.phase.value.is === "live" ? (
          <Acts agent={agent} again={again} />
        ) : null}
      </OneHead>
      {isGone ? (
        <Empty title="This agent is not connected">
          {agent === undefined ? "It may have another name, or have left." : "It left while this page was open. What follows is the last that was known."}
        </Empty>
      ) : answer.is === "failed" ? (
        <Failed error={answer.error} onRetry={again} />
      ) : null}
      {agent === undefined ? (
        answer.is === "loading" ? (
          <Loading what="the agent" />
        ) : null
      ) : (
        <div class="stack">
          <About agent={agent} at={at} />
          <Charts agent={agent} />
          <div class="columns">
            <OpenCalls calls={agent.calls} />
            <Recent id={id} />
          </div>
          <Offers agent={agent} />
        </div>
      )}
    </>
  );
}
