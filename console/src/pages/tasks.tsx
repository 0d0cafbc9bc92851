import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";

import { isOperator, link, world } from "../hub/link.ts";
import { useQuery } from "../hub/query.ts";
import { keepQuery, route, to } from "../router.ts";
import { clock, touchNow, useVersion } from "../state/frame.ts";
import { isOver, type TaskRow } from "../state/tasks.ts";
import type { TaskInfo } from "../state/views.ts";
import { Choice, Search } from "../ui/filters.tsx";
import { count, span } from "../ui/format.ts";
import { oneLine } from "../ui/json.ts";
import { Empty } from "../ui/states.tsx";
import { TaskState } from "../ui/status.tsx";
import { Table, type Column } from "../ui/table.tsx";
import { Waiting } from "./agents.tsx";

const STATES: [string, string][] = [
  ["", "any"],
  ["QUEUED", "queued"],
  ["RECEIVED", "received"],
  ["PROCESSING", "processing"],
  ["SUCCEEDED", "succeeded"],
  ["FAILED", "failed"],
];

const ageOf = (row: TaskRow): number => row.view.age_ms + Math.max(0, clock.value - row.at);

const COLUMNS: Column<TaskRow>[] = [
  {
    key: "state",
    head: "State",
    by: (row) => STATES.findIndex(([state]) => state === row.view.state),
    cell: (row) => <TaskState state={row.view.state} />,
  },
  {
    key: "capability",
    head: "Capability",
    by: (row) => row.view.capability,
    cell: (row) => (
      <a class="mono" href={to("tasks", row.id)} tabIndex={-1}>
        {row.view.capability}
      </a>
    ),
  },
  {
    key: "caller",
    head: "Owner",
    hint: "The agent that submitted it",
    by: (row) => row.view.caller,
    cell: (row) => <span class="mono">{row.view.caller}</span>,
  },
  {
    key: "target",
    head: "Held by",
    by: (row) => row.view.target ?? "",
    cell: (row) => <span class="mono">{row.view.target}</span>,
  },
  {
    key: "attempt",
    head: "Tries",
    isNumber: true,
    by: (row) => row.view.attempt,
    cell: (row) => count(row.view.attempt),
  },
  { key: "age", head: "Age", isNumber: true, by: ageOf, cell: (row) => span(ageOf(row)) },
  {
    key: "unchanged",
    head: "Unchanged",
    hint: "Since its last change of state",
    isNumber: true,
    by: (row) => row.view.unchanged_ms - row.at,
    cell: (row) => span(row.view.unchanged_ms + Math.max(0, clock.value - row.at)),
  },
  {
    key: "progress",
    head: "Says",
    cell: (row) => (
      <span class="said-short">{row.view.outcome !== undefined && row.view.outcome !== "completed" ? row.view.outcome : row.progress === undefined ? "" : oneLine(row.progress).slice(0, 200)}</span>
    ),
  },
  { key: "id", head: "Task", cell: (row) => <span class="mono of">{row.id}</span> },
];

/** Tasks of everybody, as far as they are open; of one's own, for operators of all, also those that ended before. */
export function TasksPage(): JSX.Element {
  const version = useVersion("tasks");
  const search = route.value.query.get("q") ?? "";
  const state = route.value.query.get("state") ?? "";
  const set = (query: { q?: string; state?: string }): void => keepQuery({ q: search, state, ...query });
  const [own] = useQuery<{ tasks: TaskInfo[] }>("hub.tasks.list", { limit: 200, all: isOperator() });
  useEffect(() => {
    if (own.is !== "ok") return;
    // What the events say of a task is newer than any list.
    for (const task of own.value.tasks) if (world.tasks.get(task.task_id) === undefined) world.tasks.put(task, Date.now());
    touchNow("tasks");
  }, [own]);
  const rows = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const takes = ({ view }: TaskRow): boolean => {
      if (state !== "" && view.state !== state) return false;
      const text = [view.task_id, view.capability, view.caller, view.target ?? "", view.outcome ?? ""].join("\n");
      return words.every((word) => text.toLowerCase().includes(word));
    };
    return [...world.tasks.rows()].filter(takes).reverse();
  }, [version, search, state]);
  const isWhole = link.isWhole.value;
  const open = [...world.tasks.rows()].filter((row) => !isOver(row.view.state)).length;
  return (
    <>
      <div class="tools">
        <h1>Tasks</h1>
        <Search label="Search capability, owner, id" value={search} onInput={(q) => set({ q })} />
        <Choice label="State" value={state} options={STATES} onChange={(chosen) => set({ state: chosen })} />
        <span class="tools-end" role="status">
          {count(open)} open{world.tasks.leftOut > 0 ? "; not all are shown" : ""}
        </span>
      </div>
      <p class="note under-tools">
        Everybody’s open tasks, those that ended while this page was open, and {isOperator() ? "the newest" : "your own"} from before.
      </p>
      {rows.length === 0 && !isWhole ? (
        <Waiting what="tasks" />
      ) : (
        <Table
          name="tasks"
          label="Tasks"
          rows={rows}
          columns={COLUMNS}
          idOf={(row) => row.id}
          hrefOf={(row) => to("tasks", row.id)}
          toneOf={(row) => (row.view.state === "FAILED" ? "failed" : "")}
          empty={
            search === "" && state === "" ? (
              <Empty title="No open tasks">A task outlives its caller and the hub’s process. What is submitted appears here.</Empty>
            ) : (
              <Empty title="No task matches" />
            )
          }
        />
      )}
    </>
  );
}
