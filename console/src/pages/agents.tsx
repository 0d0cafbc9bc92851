import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";

import { link, world } from "../hub/link.ts";
import { sweep } from "../hub/sweep.ts";
import { keepQuery, route, to } from "../router.ts";
import { AGENTS_MAX, filtered, type AgentRow } from "../state/agents.ts";
import { clock, useVersion } from "../state/frame.ts";
import { Bar } from "../ui/facts.tsx";
import { Choice, Search } from "../ui/filters.tsx";
import { count, micros, share, span } from "../ui/format.ts";
import { Empty, Failed, Loading } from "../ui/states.tsx";
import { AgentStatus } from "../ui/status.tsx";
import { Table, type Column } from "../ui/table.tsx";
import { CallError } from "@agent-reach/client";

const STATUSES = ["", "ready", "degraded", "draining", "suspect", "away"] as const;

/** Rows are sorted by how well an agent is, the worst first. */
const ORDER = ["suspect", "degraded", "draining", "away", "ready"];

const successOf = (row: AgentRow): number | undefined => world.calls.figuresOf(row.id)?.success;

function Slots({ row }: { row: AgentRow }): JSX.Element {
  const { in_flight: taken, max_concurrency: slots } = row.view;
  const part = slots === 0 ? 0 : taken / slots;
  return (
    <>
      <Bar part={part} tone={part >= 1 ? "bad" : part >= 0.8 ? "warn" : ""} />
      {count(taken)}
      <span class="of">/{count(slots)}</span>
    </>
  );
}

function Load({ row }: { row: AgentRow }): JSX.Element {
  const { cpu, memory, queued, health } = row.view.load;
  const parts = [
    health === undefined ? "" : `health ${health}`,
    cpu === undefined ? "" : `cpu ${share(cpu)}`,
    memory === undefined ? "" : `mem ${share(memory)}`,
    queued === undefined || queued === 0 ? "" : `${count(queued)} queued`,
  ].filter(Boolean);
  return <>{parts.length === 0 ? <span class="none">–</span> : parts.join(" · ")}</>;
}

const COLUMNS: Column<AgentRow>[] = [
  {
    key: "id",
    head: "Agent",
    by: (row) => row.id,
    cell: (row) => (
      <a class="mono" href={to("agents", row.id)} tabIndex={-1} title={row.id}>
        {row.id}
      </a>
    ),
  },
  {
    key: "status",
    head: "Status",
    by: (row) => ORDER.indexOf(row.view.status),
    cell: (row) => <AgentStatus status={row.view.status} />,
  },
  {
    key: "slots",
    head: "In flight",
    hint: "Calls that the hub counts at this agent, of the slots that it has",
    isNumber: true,
    by: (row) => row.view.in_flight / Math.max(1, row.view.max_concurrency),
    cell: (row) => <Slots row={row} />,
  },
  {
    key: "latency",
    head: "Latency",
    hint: "The hub’s moving average from CALL to RESULT",
    isNumber: true,
    by: (row) => row.view.latency_us,
    cell: (row) => (row.view.latency_us === 0 ? <span class="none">–</span> : micros(row.view.latency_us)),
  },
  {
    key: "success",
    head: "Success",
    hint: "Of the newest calls that this page has seen end",
    isNumber: true,
    by: (row) => successOf(row) ?? 2,
    cell: (row) => share(successOf(row)),
  },
  { key: "load", head: "Reported load", hint: "What the agent says of itself", cell: (row) => <Load row={row} /> },
  {
    key: "capabilities",
    head: "Capabilities",
    by: (row) => row.view.capabilities.join(" "),
    cell: (row) => (
      <span class="mono small" title={row.view.capabilities.join("\n")}>
        {row.view.capabilities.join(" ")}
      </span>
    ),
  },
  {
    key: "version",
    head: "Service",
    by: (row) => `${row.view.service ?? ""} ${row.view.version ?? ""}`,
    cell: (row) => (
      <span title={row.view.sdk}>
        {row.view.service} <span class="of">{row.view.version}</span>
      </span>
    ),
  },
  {
    key: "labels",
    head: "Labels",
    cell: (row) => (
      <span class="small">
        {Object.entries(row.view.labels).map(([key, value]) => (
          <span key={key} class="tag">
            {key}={value}
          </span>
        ))}
      </span>
    ),
  },
  {
    key: "connected",
    head: "Connected",
    isNumber: true,
    by: (row) => row.view.connected_ms - row.at,
    cell: (row) => span(row.view.connected_ms + clock.value - row.at),
  },
];

/** Why there is no list of events yet. */
export function Waiting({ what }: { what: string }): JSX.Element {
  const refused = link.refused.value;
  if (refused !== undefined) return <Failed error={new CallError("unauthorized", refused)} />;
  return <Loading what={what} />;
}

/** Everybody who is there. */
export function AgentsPage(): JSX.Element {
  const version = useVersion("agents");
  const isWhole = link.isWhole.value;
  const search = route.value.query.get("q") ?? "";
  const status = route.value.query.get("status") ?? "";
  const set = (query: { q?: string; status?: string }): void => keepQuery({ q: search, status, ...query });
  useEffect(() => {
    const ended = new AbortController();
    void sweep(ended.signal);
    return () => ended.abort();
  }, []);
  const rows = useMemo(() => filtered(world.agents.rows(), { search, status }), [version, search, status, isWhole]);
  const isEmpty = world.agents.size === 0;
  return (
    <>
      <div class="tools">
        <h1>Agents</h1>
        <Search label="Search id, label, capability, …" value={search} onInput={(q) => set({ q })} />
        <Choice
          label="Status"
          value={status}
          options={STATUSES.map((name) => [name, name === "" ? "any" : name])}
          onChange={(chosen) => set({ status: chosen })}
        />
        <span class="tools-end" role="status">
          {count(rows.length)} of {count(world.agents.size)}
          {world.agents.leftOut > 0 ? `; beyond ${count(AGENTS_MAX)} none are shown` : ""}
        </span>
      </div>
      {isEmpty && !isWhole ? (
        <Waiting what="agents" />
      ) : (
        <Table
          name="agents"
          label="Agents"
          rows={rows}
          columns={COLUMNS}
          idOf={(row) => row.id}
          hrefOf={(row) => to("agents", row.id)}
          sort={{ key: "id", isDescending: false }}
          toneOf={(row) => (row.view.status === "suspect" || row.view.status === "away" ? "faded" : "")}
          empty={
            isEmpty ? (
              <Empty title="No agent is connected">
                Start one with an SDK, or try <code>agent-reach demo</code>.
              </Empty>
            ) : (
              <Empty title="No agent matches">Take a word out of the search, or choose another status.</Empty>
            )
          }
        />
      )}
    </>
  );
}
