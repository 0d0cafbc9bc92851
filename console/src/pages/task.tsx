import type { JSX } from "preact";
import { useMemo } from "preact/hooks";

import { isOperator, link, world } from "../hub/link.ts";
import { useQuery } from "../hub/query.ts";
import { go, to } from "../router.ts";
import { clock, useVersion } from "../state/frame.ts";
import { isOver } from "../state/tasks.ts";
import type { Attempt, TaskInfo } from "../state/views.ts";
import { Confirm } from "../ui/dialog.tsx";
import { AgentLink, CapabilityLink, Fact, Facts, OneHead } from "../ui/facts.tsx";
import { count, millis, span } from "../ui/format.ts";
import { json } from "../ui/json.ts";
import { Empty, Failed, Loading } from "../ui/states.tsx";
import { Outcome, TaskState } from "../ui/status.tsx";

function Attempts({ attempts }: { attempts: Attempt[] }): JSX.Element | null {
  if (attempts.length === 0) return null;
  return (
    <section class="panel">
      <h2>Tries ({count(attempts.length)})</h2>
      <ul class="lines">
        {attempts.map((one, at) => (
          <li key={at}>
            <AgentLink id={one.target} />
            <Outcome outcome={one.outcome} />
            <span class="grow said">{one.reason}</span>
            <span class="number">{millis(one.ms)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function End({ task }: { task: TaskInfo }): JSX.Element | null {
  // Megabytes of text are no table: what is too long is cut, and says so.
  const text = useMemo(() => (task.result === undefined ? undefined : json(task.result)), [task.result]);
  if (task.error === undefined && text === undefined) return null;
  return (
    <section class="panel">
      <h2>{task.error === undefined ? "Result" : "Why it failed"}</h2>
      {task.error === undefined ? null : (
        <>
          <p>
            <Outcome outcome={task.error.code} /> {task.error.retryable ? <span class="tag">may be tried again</span> : null}
          </p>
          <p class="wrong">{task.error.message}</p>
          {task.error.details === undefined ? null : <pre class="mono result">{json(task.error.details)}</pre>}
        </>
      )}
      {task.route === undefined ? null : <p class="note">{task.route}</p>}
      {text === undefined ? null : (
        <pre class="mono result" tabIndex={0}>
          {text.length > 65_536 ? `${text.slice(0, 65_536)}\n… ${count(text.length - 65_536)} letters more` : text}
        </pre>
      )}
    </section>
  );
}

function Deliveries({ task: { callback } }: { task: TaskInfo }): JSX.Element | null {
  if (callback === undefined) return null;
  return (
    <section class="panel">
      <h2>Delivery to a URL</h2>
      <Facts>
        <Fact name="Where to">
          <span class="mono">{callback.url}</span>
        </Fact>
        <Fact name="Deliveries">{count(callback.attempts)}</Fact>
        <Fact name="The last one">{callback.outcome ?? "none yet"}</Fact>
        <Fact name="The next one">{callback.next_in_ms === undefined ? "none" : `in ${span(callback.next_in_ms)}`}</Fact>
      </Facts>
    </section>
  );
}

/** Has the CALL of a task that failed made again, and goes to the new task. */
function Retry({ id }: { id: string }): JSX.Element {
  const run = async (): Promise<void> => {
    const again = await link.call<{ task_id: string }>("hub.tasks.retry", { task_id: id });
    go(to("tasks", again.task_id));
  };
  return (
    <Confirm act="Run again" title="Run this task again?" run={run}>
      Its CALL is made once more, as a new task of the same owner. The first run may have done some or all of its work: what
      must not happen twice may happen twice.
    </Confirm>
  );
}

/** One task. */
export function TaskPage({ id }: { id: string }): JSX.Element {
  useVersion("tasks");
  const row = world.tasks.get(id);
  const [answer, again] = useQuery<TaskInfo>("hub.tasks.get", { task_id: id, all: isOperator() }, row !== undefined && isOver(row.view.state) ? undefined : 2000);
  const full = answer.is === "ok" ? answer.value : undefined;
  const isAnothers = answer.is === "failed" && answer.error.code === "invalid_request";
  // An event is newer than the last answer; only the answer has tries and end.
  const task = full !== undefined && (row === undefined || isOver(full.state) || !isOver(row.view.state)) ? full : (row?.view ?? full);
  const isOpen = task !== undefined && !isOver(task.state);
  const since = row === undefined ? 0 : Math.max(0, clock.value - row.at);
  return (
    <>
      <OneHead up={[to("tasks"), "Tasks"]} title={id}>
        {isOperator() && isOpen && full !== undefined && link.phase.value.is === "live" ? (
          <Confirm act="Cancel task" title="Cancel this task?" run={() => link.call("hub.tasks.cancel", { task_id: id, all: true }).then(again)}>
            It fails with “cancelled”, and the agent that works on it is told.
          </Confirm>
        ) : null}
        {isOperator() && task?.state === "FAILED" && link.phase.value.is === "live" ? <Retry id={id} /> : null}
      </OneHead>
      <div class="stack">
        {task === undefined ? null : (
          <section class="panel">
            <Facts>
              <Fact name="State">
                <TaskState state={task.state} />
              </Fact>
              <Fact name="Capability">
                <CapabilityLink name={task.capability} />
              </Fact>
              <Fact name="Owner" hint="The agent that submitted it">
                <AgentLink id={task.caller} />
              </Fact>
              <Fact name="Held by">{task.target === undefined ? "nobody" : <AgentLink id={task.target} />}</Fact>
              <Fact name="Tries">{count(task.attempt)}</Fact>
              <Fact name="Age">{span(task.age_ms + (task === row?.view ? since : 0))}</Fact>
              <Fact name="Unchanged">{span(task.unchanged_ms + (task === row?.view ? since : 0))}</Fact>
              {task.budget_left_ms === undefined ? null : <Fact name="Time left">{span(task.budget_left_ms)}</Fact>}
              {task.execution_ms === undefined ? null : <Fact name="Worked on">{millis(task.execution_ms)}</Fact>}
              <Fact name="Request">
                <span class="mono">{task.request_id}</span>
              </Fact>
              {task.retry_of === undefined ? null : (
                <Fact name="Made again of" hint="The task that failed, whose CALL this one makes once more">
                  <a class="mono" href={to("tasks", task.retry_of)}>
                    {task.retry_of}
                  </a>
                </Fact>
              )}
            </Facts>
          </section>
        )}
        {row?.progress === undefined ? null : (
          <section class="panel">
            <h2>Progress</h2>
            <pre class="mono result">{json(row.progress).slice(0, 65_536)}</pre>
          </section>
        )}
        {full === undefined ? null : (
          <>
            <Attempts attempts={full.attempts ?? []} />
            <End task={full} />
            <Deliveries task={full} />
          </>
        )}
        {isAnothers && task !== undefined ? (
          <p class="note boxed">
            Its tries and its result are shown to who submitted it and to operators, and only they can cancel it.
          </p>
        ) : null}
        {isAnothers && task === undefined ? (
          <Empty title="No such task">Another identity’s task that has ended looks the same from here.</Empty>
        ) : null}
        {answer.is === "failed" && !isAnothers ? <Failed error={answer.error} onRetry={again} /> : null}
        {answer.is === "loading" && task === undefined ? <Loading what="the task" /> : null}
      </div>
    </>
  );
}
