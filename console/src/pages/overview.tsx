import type { ComponentChildren, JSX } from "preact";
import { useMemo } from "preact/hooks";

import { link, world } from "../hub/link.ts";
import { to } from "../router.ts";
import { filteredCalls, worstFirst } from "../state/calls.ts";
import { clock, useVersion } from "../state/frame.ts";
import { Histogram } from "../state/histogram.ts";
import type { Stats } from "../state/views.ts";
import { Chart, type Line } from "../ui/chart.tsx";
import { AgentLink, CapabilityLink } from "../ui/facts.tsx";
import { bytes, count, micros, rate, share } from "../ui/format.ts";
import { Loading } from "../ui/states.tsx";
import { Mark, type Tone } from "../ui/status.tsx";
import { CallLine } from "./lines.tsx";

/** What charts look back on, in seconds, and over how many each point of the latency goes. */
const BACK = 180;
const LATENCY_OVER = 5;

const RATE: Line[] = [
  { label: "completed/s", colour: "--accent", isFilled: true },
  { label: "failed/s", colour: "--bad" },
];
const LATENCY: Line[] = [
  { label: "p50", colour: "--accent" },
  { label: "p95", colour: "--warn" },
  { label: "p99", colour: "--bad", dash: [4, 3] },
];
const DEPTH: Line[] = [
  { label: "open calls", colour: "--accent", isFilled: true },
  { label: "in flight at agents", colour: "--busy", dash: [4, 3] },
  { label: "waiting", colour: "--warn" },
];
const MEMORY: Line[] = [
  { label: "waiting to be sent", colour: "--accent" },
  { label: "in open calls", colour: "--warn", dash: [4, 3] },
];

function Tile(props: { name: string; children: ComponentChildren; note?: ComponentChildren; href?: string; tone?: Tone }): JSX.Element {
  const { name, children, note, href, tone } = props;
  const body = (
    <>
      <span class="tile-name">{name}</span>
      <span class="tile-value">{tone === undefined ? children : <Mark tone={tone}>{children}</Mark>}</span>
      <span class="tile-note">{note}</span>
    </>
  );
  return href === undefined ? (
    <div class="tile">{body}</div>
  ) : (
    <a class="tile" href={href}>
      {body}
    </a>
  );
}

interface Recent {
  at: number[];
  completed: number[];
  failed: number[];
  p50: (number | undefined)[];
  p95: (number | undefined)[];
  p99: (number | undefined)[];
  perSecond: number;
  failedShare: number | undefined;
}

/** What the last seconds come to. The tiles look at ten of them. */
function recent(now: number): Recent {
  const seconds = world.calls.seconds.before(now, BACK);
  const figures: Recent = { at: [], completed: [], failed: [], p50: [], p95: [], p99: [], perSecond: 0, failedShare: undefined };
  seconds.forEach((second, index) => {
    figures.at.push(second.at);
    figures.completed.push(second.completed);
    figures.failed.push(second.failed);
    const times = new Histogram();
    for (const near of seconds.slice(Math.max(0, index - LATENCY_OVER + 1), index + 1)) times.merge(near.times);
    figures.p50.push(times.quantile(0.5));
    figures.p95.push(times.quantile(0.95));
    figures.p99.push(times.quantile(0.99));
  });
  const last = seconds.slice(-10);
  const ended = last.reduce((sum, second) => sum + second.completed + second.failed, 0);
  const failed = last.reduce((sum, second) => sum + second.failed, 0);
  figures.perSecond = last.length === 0 ? 0 : ended / last.length;
  figures.failedShare = ended === 0 ? undefined : failed / ended;
  return figures;
}

function Tiles({ stats, calls }: { stats: Stats; calls: Recent }): JSX.Element {
  const missing = stats.agents_suspect + stats.agents_away;
  const ready = `${count(stats.agents_ready)} ready`;
  const failed = calls.failedShare;
  const { resident_bytes: resident, connections } = stats;
  const each = resident === undefined || connections === 0 ? undefined : resident / connections;
  const tripped = stats.breakers_open + stats.breakers_half_open;
  return (
    <div class="tiles">
      <Tile name="Connections" note={`hub ${stats.hub}${stats.draining ? ", draining" : ""}`}>
        {count(stats.connections)}
      </Tile>
      <Tile
        name="Agents"
        href={to("agents")}
        note={missing === 0 ? ready : `${ready}, ${count(stats.agents_suspect)} suspect, ${count(stats.agents_away)} away`}
        {...(missing === 0 ? {} : { tone: "warn" as const })}
      >
        {count(stats.agents)}
      </Tile>
      <Tile name="Capabilities" href={to("capabilities")} note="offered now">
        {count(stats.capabilities)}
      </Tile>
      <Tile name="Calls/s" href={to("calls")} note="ended, over 10 s">
        {rate(calls.perSecond)}
      </Tile>
      <Tile
        name="Failed"
        href={to("calls", undefined, { show: "failed" })}
        note="of the last 10 s"
        {...(failed === undefined || failed === 0 ? {} : { tone: failed > 0.05 ? ("bad" as const) : ("warn" as const) })}
      >
        {share(failed)}
      </Tile>
      <Tile name="Open calls" href={to("calls", undefined, { show: "open" })} note={`${count(stats.in_flight)} at agents, ${count(stats.waiting)} waiting`}>
        {count(stats.open_calls)}
      </Tile>
      <Tile name="Breakers not closed" note={`${count(stats.breakers_half_open)} on trial`} {...(tripped === 0 ? {} : { tone: "bad" as const })}>
        {count(tripped)}
      </Tile>
      <Tile name="Memory per connection" note={`${bytes(resident)} in all, ${bytes(stats.outbound_bytes + stats.open_bytes)} of it buffered`}>
        {bytes(each)}
      </Tile>
    </div>
  );
}

function Codes({ stats }: { stats: Stats }): JSX.Element {
  const codes = Object.entries(stats.failed_by_code).sort(([, a], [, b]) => b - a);
  return (
    <section class="panel">
      <h2>Errors by code</h2>
      {codes.length === 0 ? <p class="quiet-line">No call has failed since the hub’s start.</p> : null}
      <ul class="lines">
        {codes.slice(0, 12).map(([code, number]) => (
          <li key={code}>
            <a class="mono grow" href={to("calls", undefined, { q: code, show: "failed" })}>
              {code}
            </a>
            <span class="number of">{share(number / stats.calls_failed)}</span>
            <span class="number">{count(number)}</span>
          </li>
        ))}
      </ul>
      <p class="note">
        Since the hub’s start: {count(stats.calls_failed)} of {count(stats.calls_failed + stats.calls_completed)} calls, refused
        ones included.
      </p>
    </section>
  );
}

function Phases({ latency }: { latency: Stats["latency"] }): JSX.Element {
  const { excluded, routed } = world.traces.figures();
  const reasons = [...excluded].sort(([, a], [, b]) => b - a);
  return (
    <section class="panel">
      <h2>Phases and routing</h2>
      <table class="plain">
        <thead>
          <tr>
            <th>Phase</th>
            <th class="number">p50</th>
            <th class="number">p90</th>
            <th class="number">p99</th>
          </tr>
        </thead>
        <tbody>
          {(["accept", "process", "total"] as const).map((name) => (
            <tr key={name}>
              <td>{name}</td>
              <td class="number">{micros(latency[name].p50_us)}</td>
              <td class="number">{micros(latency[name].p90_us)}</td>
              <td class="number">{micros(latency[name].p99_us)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="note">
        The hub’s own figures of {count(latency.total.calls)} calls of the last minute. Where the answer stood for the ACCEPT all
        of it is accept.
      </p>
      <h3>Agents passed over</h3>
      {reasons.length === 0 ? <p class="quiet-line">None in the sample.</p> : null}
      <p class="tags">
        {reasons.map(([why, number]) => (
          <span key={why} class={`tag ${why === "tripped" ? "tag-bad" : ""}`}>
            {why === "tripped" ? "breaker open" : why} {count(number)}
          </span>
        ))}
      </p>
      <p class="note">
        From the traces of {count(world.traces.size)} calls ({count(routed)} routings): a sample, failed and slow ones preferred.
      </p>
    </section>
  );
}

/** What stands in the way of calls: breakers, and lines that they wait in. */
function Held({ stats }: { stats: Stats }): JSX.Element {
  const { breakers, waiting_by_capability: lines } = stats;
  const more = stats.breakers_open + stats.breakers_half_open - breakers.length;
  return (
    <section class="panel">
      <h2>Breakers</h2>
      {breakers.length === 0 ? <p class="quiet-line">All are closed.</p> : null}
      <ul class="lines">
        {breakers.slice(0, 12).map(({ agent_id: agent, capability, state }) => (
          <li key={`${agent} ${capability}`}>
            <span class="grow">
              <AgentLink id={agent} /> <CapabilityLink name={capability} />
            </span>
            <Mark tone={state === "open" ? "bad" : "warn"}>{state.replace("_", " ")}</Mark>
          </li>
        ))}
      </ul>
      {more + breakers.length > 12 ? <p class="note">{count(more + breakers.length)} in all.</p> : null}
      <h2>Waiting calls</h2>
      {lines.length === 0 ? <p class="quiet-line">No call waits for an agent.</p> : null}
      <ul class="lines">
        {lines.slice(0, 12).map(({ capability, calls }) => (
          <li key={capability}>
            <span class="grow">
              <CapabilityLink name={capability} />
            </span>
            <span class="number">{count(calls)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Busiest(): JSX.Element {
  const now = clock.value;
  const rows = [...world.calls.capabilities.entries()]
    .map(([name, figures]) => ({ name, figures, perSecond: figures.rate(now) }))
    .sort((a, b) => b.perSecond - a.perSecond)
    .slice(0, 8);
  return (
    <section class="panel">
      <h2>
        Busiest capabilities <a href={to("capabilities")}>all</a>
      </h2>
      {rows.length === 0 ? <p class="quiet-line">No call has ended since this page is open.</p> : null}
      {rows.length === 0 ? null : (
        <table class="plain">
          <thead>
            <tr>
              <th>Capability</th>
              <th class="number">calls/s</th>
              <th class="number">success</th>
              <th class="number">p95</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ name, figures, perSecond }) => (
              <tr key={name}>
                <td>
                  <CapabilityLink name={name} />
                </td>
                <td class="number">{rate(perSecond)}</td>
                <td class="number">{share(figures.success)}</td>
                <td class="number">{micros(figures.quantile(0.95))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Worst(): JSX.Element {
  const second = clock.value;
  const rows = useMemo(() => worstFirst(filteredCalls(world.calls, { search: "", which: "failed" }, second), second).slice(0, 8), [second]);
  return (
    <section class="panel">
      <h2>
        Failed last <a href={to("calls", undefined, { show: "failed" })}>all</a>
      </h2>
      {rows.length === 0 ? <p class="quiet-line">None since this page is open.</p> : null}
      <ul class="lines">
        {rows.map((row) => (
          <CallLine key={row.id} row={row} />
        ))}
      </ul>
    </section>
  );
}

/** How the hub is doing. */
export function OverviewPage(): JSX.Element {
  const stats = link.stats.value;
  const second = clock.value;
  useVersion("stats");
  const calls = useMemo(() => recent(second), [second]);
  const trend = useMemo(() => {
    const all = [...world.trend].reverse();
    const at = all.map((one) => one.at / 1000);
    return {
      depth: [at, all.map(({ stats: one }) => one.open_calls), all.map(({ stats: one }) => one.in_flight), all.map(({ stats: one }) => one.waiting)],
      memory: [at, all.map(({ stats: one }) => one.outbound_bytes), all.map(({ stats: one }) => one.open_bytes)],
    };
  }, [stats]);
  const charts = useMemo(
    () => ({ rate: [calls.at, calls.completed, calls.failed], latency: [calls.at, calls.p50, calls.p95, calls.p99] }),
    [calls],
  );
  if (stats === undefined) return <Loading what="Figures" />;
  return (
    <div class="stack">
      <h1 class="unseen">Overview</h1>
      <Tiles stats={stats} calls={calls} />
      <div class="columns">
        <Chart title="Calls" lines={RATE} data={charts.rate} format={count} unit="whole" />
        <Chart
          title="Time in all"
          note="From CALL to end as events tell it, in whole milliseconds; over the last 5 s."
          lines={LATENCY}
          data={charts.latency}
          format={micros}
        />
        <Chart title="Queue depth" lines={DEPTH} data={trend.depth} format={count} unit="whole" />
        <Chart title="Bytes held" lines={MEMORY} data={trend.memory} format={bytes} unit="bytes" />
      </div>
      <div class="columns three">
        <Codes stats={stats} />
        <Phases latency={stats.latency} />
        <Held stats={stats} />
      </div>
      <div class="columns">
        <Busiest />
        <Worst />
      </div>
    </div>
  );
}
