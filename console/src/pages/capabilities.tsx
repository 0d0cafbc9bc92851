import type { JSX } from "preact";
import { useMemo } from "preact/hooks";

import { link, world } from "../hub/link.ts";
import { useQuery } from "../hub/query.ts";
import { keepQuery, route, to } from "../router.ts";
import { clock, useVersion } from "../state/frame.ts";
import type { CapabilityInfo } from "../state/views.ts";
import { Search } from "../ui/filters.tsx";
import { count, micros, rate, share } from "../ui/format.ts";
import { Empty, Failed, Loading } from "../ui/states.tsx";
import { Mark } from "../ui/status.tsx";
import { Table, type Column } from "../ui/table.tsx";

/** How often the dictionary is asked for: who offers what comes with the events, descriptions do not. */
const EVERY_MS = 10_000;

/** A name of the dictionary as the hub lists it. */
export type Listed = CapabilityInfo & { offered_by: number };

interface Row {
  name: string;
  listed: Listed;
  ready: number;
  text: string;
}

const figures = (row: Row): ReturnType<typeof world.calls.capabilities.get> => world.calls.capabilities.get(row.name);

function versionsOf({ agents }: Listed): string {
  return [...new Set(agents.map((agent) => agent.version).filter((version) => version !== undefined))].join(", ");
}

const COLUMNS: Column<Row>[] = [
  {
    key: "name",
    head: "Capability",
    by: (row) => row.name,
    cell: (row) => (
      <a class="mono" href={to("capabilities", row.name)} tabIndex={-1}>
        {row.name}
      </a>
    ),
  },
  { key: "version", head: "Version", cell: (row) => versionsOf(row.listed) },
  {
    key: "offered",
    head: "Ready",
    hint: "Agents that are ready, of all that offer it",
    isNumber: true,
    by: (row) => row.ready,
    cell: (row) => (
      <>
        {row.ready === 0 ? <Mark tone="bad">0</Mark> : count(row.ready)}
        <span class="of">/{count(row.listed.offered_by)}</span>
      </>
    ),
  },
  {
    key: "rate",
    head: "Calls/s",
    hint: "Ended calls a second, of the last minute that this page has seen",
    isNumber: true,
    by: (row) => figures(row)?.rate(clock.value) ?? 0,
    cell: (row) => rate(figures(row)?.rate(clock.value) ?? 0),
  },
  {
    key: "success",
    head: "Success",
    hint: "Of the newest 256 calls that this page has seen end",
    isNumber: true,
    by: (row) => figures(row)?.success ?? 2,
    cell: (row) => {
      const success = figures(row)?.success;
      if (success === undefined || success === 1) return share(success);
      return <Mark tone={success < 0.9 ? "bad" : "warn"}>{share(success)}</Mark>;
    },
  },
  {
    key: "p50",
    head: "p50",
    hint: "Half of the newest calls took no longer, the way through the hub included",
    isNumber: true,
    by: (row) => figures(row)?.quantile(0.5) ?? 0,
    cell: (row) => micros(figures(row)?.quantile(0.5)),
  },
  {
    key: "p95",
    head: "p95",
    isNumber: true,
    by: (row) => figures(row)?.quantile(0.95) ?? 0,
    cell: (row) => micros(figures(row)?.quantile(0.95)),
  },
  {
    key: "about",
    head: "Description",
    cell: (row) => <span class="said-short">{row.listed.agents.find((agent) => agent.description !== undefined)?.description}</span>,
  },
];

function readyBy(): Map<string, number> {
  const ready = new Map<string, number>();
  for (const { view } of world.agents.rows()) {
    if (view.status !== "ready") continue;
    for (const name of view.capabilities) ready.set(name, (ready.get(name) ?? 0) + 1);
  }
  return ready;
}

/** The dictionary: what can be asked for here. */
export function CapabilitiesPage(): JSX.Element {
  const version = useVersion("agents");
  useVersion("calls");
  const search = route.value.query.get("q") ?? "";
  const [answer, again] = useQuery<{ capabilities: Listed[]; more?: boolean }>("hub.capabilities.list", {}, EVERY_MS);
  const listed = answer.is === "loading" ? undefined : answer.value;
  const rows = useMemo(() => {
    const ready = readyBy();
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const all = (listed?.capabilities ?? []).map((one) => ({
      name: one.name,
      listed: one,
      // Aliases are no names of an agent's own; whoever offers them is listed with the name.
      ready: ready.get(one.name) ?? one.agents.filter((agent) => agent.status === "ready").length,
      text: [one.name, ...one.agents.map((agent) => agent.description ?? "")].join("\n").toLowerCase(),
    }));
    return all.filter((row) => words.every((word) => row.text.includes(word)));
  }, [version, listed, search]);
  return (
    <>
      <div class="tools">
        <h1>Capabilities</h1>
        <Search label="Search name, description" value={search} onInput={(q) => keepQuery({ q })} />
        <span class="tools-end" role="status">
          {listed === undefined ? "" : `${count(rows.length)} of ${count(listed.capabilities.length)}`}
          {listed?.more === true ? "; the hub has more than it lists at once" : ""}
        </span>
      </div>
      {listed === undefined ? (
        answer.is === "failed" ? (
          <Failed error={answer.error} onRetry={again} />
        ) : (
          <Loading what="capabilities" />
        )
      ) : (
        <Table
          name="capabilities"
          label="Capabilities"
          rows={rows}
          columns={COLUMNS}
          idOf={(row) => row.name}
          hrefOf={(row) => to("capabilities", row.name)}
          sort={{ key: "name", isDescending: false }}
          toneOf={(row) => (row.listed.offered_by === 0 ? "faded" : "")}
          empty={
            search === "" ? (
              <Empty title="Nobody offers anything">
                {link.session.value === undefined ? "" : "What agents offer appears here as they connect."}
              </Empty>
            ) : (
              <Empty title="No capability matches" />
            )
          }
        />
      )}
    </>
  );
}
