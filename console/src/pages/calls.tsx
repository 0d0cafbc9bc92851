import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { link, world } from "../hub/link.ts";
import { keepQuery, route, to } from "../router.ts";
import { ENDED_MAX, filteredCalls, hasFailed, SLOW_MS, worstFirst, type CallFilter, type CallRow } from "../state/calls.ts";
import { clock, useVersion } from "../state/frame.ts";
import { Choice, Search } from "../ui/filters.tsx";
import { count, millis, time } from "../ui/format.ts";
import { onPauseKey } from "../ui/keys.ts";
import { Empty } from "../ui/states.tsx";
import { Outcome } from "../ui/status.tsx";
import { Table, type Column } from "../ui/table.tsx";
import { Waiting } from "./agents.tsx";

const WHICH: [CallFilter["which"], string][] = [
  ["all", "all"],
  ["failed", "failed"],
  ["slow", `slow (≥ ${SLOW_MS / 1000} s)`],
  ["open", "open"],
];

const COLUMNS: Column<CallRow>[] = [
  { key: "when", head: "Began", cell: (row) => <span class="mono">{time(row.began)}</span> },
  {
    key: "capability",
    head: "Capability",
    cell: (row) => (
      <a class="mono" href={to("calls", row.id)} tabIndex={-1}>
        {row.view.capability}
      </a>
    ),
  },
  { key: "caller", head: "Caller", cell: (row) => <span class="mono">{row.view.caller}</span> },
  {
    key: "target",
    head: "Target",
    cell: (row) => <span class="mono">{row.view.targets.length > 3 ? `${row.view.targets.length} agents` : row.view.targets.join(", ")}</span>,
  },
  {
    key: "outcome",
    head: "Outcome",
    cell: (row) => <Outcome outcome={row.outcome} state={row.view.state} />,
  },
  {
    key: "took",
    head: "Took",
    isNumber: true,
    cell: (row) => (row.ms === undefined ? <span class="of">{millis(Math.max(0, clock.value - row.began))}</span> : millis(row.ms)),
  },
  {
    key: "mode",
    head: "Mode",
    cell: (row) => (
      <>
        {row.view.mode}
        {row.view.stream ? " · stream" : ""}
      </>
    ),
  },
  { key: "id", head: "Call", cell: (row) => <span class="mono of">{row.id}</span> },
];

/** Calls as they begin and end. */
export function CallsPage(): JSX.Element {
  const { query } = route.value;
  const search = query.get("q") ?? "";
  const which = (WHICH.find(([name]) => name === query.get("show"))?.[0] ?? "all") satisfies CallFilter["which"];
  const order = query.get("order") === "newest" ? "newest" : "worst";
  const set = (next: Record<string, string>): void => keepQuery({ q: search, show: which, order, ...next });
  const [isStopped, setStopped] = useState(false);
  const [isTop, setTop] = useState(true);
  const isLive = !isStopped && isTop;
  const version = useVersion("calls");
  const frozen = useRef({ rows: [] as CallRow[], seen: 0, key: "" });
  useEffect(() => onPauseKey(() => setStopped((before) => !before)), []);
  const key = `${search}\n${which}\n${order}`;
  const rows = useMemo(() => {
    const held = frozen.current;
    // A list that moves under the pointer cannot be read: it stands still while somebody reads, but for a new filter.
    if (!isLive && held.key === key) return held.rows;
    const now = Date.now();
    const found = filteredCalls(world.calls, { search, which }, now);
    if (order === "worst") worstFirst(found, now);
    frozen.current = { rows: found, seen: world.calls.seen, key };
    return found;
  }, [version, key, isLive]);
  const missed = world.calls.seen - frozen.current.seen;
  const { untold } = world.calls;
  const isWhole = link.isWhole.value;
  return (
    <>
      <div class="tools">
        <h1>Calls</h1>
        <Search label="Search capability, agent, outcome, …" value={search} onInput={(q) => set({ q })} />
        <Choice label="Which calls" value={which} options={WHICH} onChange={(show) => set({ show })} />
        <Choice
          label="Order"
          value={order}
          options={[
            ["worst", "worst first"],
            ["newest", "newest first"],
          ]}
          onChange={(chosen) => set({ order: chosen })}
        />
        <button type="button" aria-pressed={isStopped} onClick={() => setStopped(!isStopped)}>
          {isStopped ? "Continue" : "Stop"} <kbd>p</kbd>
        </button>
        <span class="tools-end" role="status">
          {isLive
            ? `${count(rows.length)} shown; the newest ${count(ENDED_MAX)} are kept${untold === 0 ? "" : `; ${count(untold)} refused ones too many were not told`}`
            : `standing still; ${count(missed)} ended since`}
        </span>
      </div>
      {rows.length === 0 && !isWhole ? (
        <Waiting what="calls" />
      ) : (
        <Table
          name="calls"
          label="Calls"
          rows={rows}
          columns={COLUMNS}
          idOf={(row) => row.id}
          hrefOf={(row) => to("calls", row.id)}
          toneOf={(row) => (hasFailed(row) ? "failed" : "")}
          onTop={setTop}
          empty={
            search === "" && which === "all" ? (
              <Empty title="No calls yet">Calls appear here as they begin and end. The hub tells of none from before.</Empty>
            ) : (
              <Empty title="No call matches">What comes and matches appears here.</Empty>
            )
          }
        />
      )}
    </>
  );
}
