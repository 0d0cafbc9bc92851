import type { CallOptions } from "@agent-reach/client";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { link } from "../hub/link.ts";
import { PIECES_MAX, Trial } from "../hub/trial.ts";
import { to } from "../router.ts";
import { fieldOf } from "../schema/field.ts";
import { Form, RawJson } from "../schema/form.tsx";
import { initialOf, placeOf, problemsOf } from "../schema/value.ts";
import type { OfferInfo } from "../state/views.ts";
import { AgentLink } from "../ui/facts.tsx";
import { count, millis, time } from "../ui/format.ts";
import { json, oneLine } from "../ui/json.ts";
import { says } from "../ui/states.tsx";
import { Mark } from "../ui/status.tsx";

/** Letters of a result, and of a piece, that are shown at once. */
const TEXT_MAX = 64 * 1024;
const PIECE_MAX = 2000;
/** Pieces that are drawn. */
const PIECES_SHOWN = 200;

function Long({ value }: { value: unknown }): JSX.Element {
  const [isWhole, setWhole] = useState(false);
  const text = useMemo(() => json(value), [value]);
  const isCut = text.length > TEXT_MAX && !isWhole;
  return (
    <>
      <pre class="mono result" tabIndex={0}>
        {isCut ? text.slice(0, TEXT_MAX) : text}
      </pre>
      {isCut ? (
        <button type="button" onClick={() => setWhole(true)}>
          Show all {count(text.length)} letters
        </button>
      ) : null}
    </>
  );
}

function Pieces({ trial }: { trial: Trial }): JSX.Element | null {
  const number = trial.pieces.value;
  if (number === 0) return null;
  const shown = [...trial.ring].slice(0, PIECES_SHOWN);
  return (
    <div class="pieces">
      <h3>
        Pieces <span class="of">{count(number)}, the newest first</span>
      </h3>
      <ol class="mono" tabIndex={0} aria-label="Pieces of the stream">
        {shown.map((piece) => (
          <li key={piece.seq}>
            <span class="of">
              {piece.seq} {time(piece.at)}
            </span>{" "}
            {oneLine(piece.value).slice(0, PIECE_MAX)}
          </li>
        ))}
      </ol>
      {number > PIECES_SHOWN ? <p class="note">{PIECES_SHOWN} are shown, {PIECES_MAX} kept.</p> : null}
    </div>
  );
}

function End({ trial }: { trial: Trial }): JSX.Element | null {
  const state = trial.state.value;
  switch (state.is) {
    case "idle":
      return null;
    case "running":
      return (
        <p role="status">
          <Mark tone="busy">running</Mark>{" "}
          {state.accepted?.target === undefined ? "waiting for an agent…" : <>accepted by <AgentLink id={state.accepted.target} /></>}
        </p>
      );
    case "done":
      return (
        <>
          <p role="status">
            <Mark tone="good">completed</Mark> in {millis(state.ms)}
            {state.target === undefined ? null : (
              <>
                {" "}
                by <AgentLink id={state.target} />
              </>
            )}
            {state.attempts.length > 1 ? ` after ${state.attempts.length} tries` : ""}{" "}
            {state.callId === undefined ? null : <a href={to("calls", state.callId)}>timeline</a>}
          </p>
          {state.route === undefined ? null : <p class="note">{state.route}</p>}
          <Long value={state.body} />
        </>
      );
    case "failed":
      return (
        <>
          <p role="status">
            <Mark tone="bad">{state.error.code}</Mark> after {millis(state.ms)}{" "}
            {state.error.callId === undefined ? null : <a href={to("calls", state.error.callId)}>timeline</a>}
          </p>
          <p class="wrong">{says(state.error)}</p>
          {state.error.details === undefined ? null : <Long value={state.error.details} />}
        </>
      );
  }
}

/** A form for a call, and what comes of it. */
export function TryIt({ name, offer, agents }: { name: string; offer: OfferInfo | undefined; agents: string[] }): JSX.Element {
  const schema = offer?.input_schema;
  const schemaText = JSON.stringify(schema);
  // A dictionary that is asked for again brings the same schema as another object.
  const field = useMemo(() => fieldOf(schema), [schemaText]);
  const [value, setValue] = useState<unknown>(() => initialOf(field) ?? null);
  const [isRawWrong, setRawWrong] = useState(false);
  const [wantsStream, setStream] = useState(false);
  const [target, setTarget] = useState("");
  const trial = useRef(new Trial()).current;
  const touched = useRef(false);
  const change = (next: unknown): void => {
    touched.current = true;
    setValue(next ?? null);
  };
  useEffect(() => {
    if (!touched.current) setValue(initialOf(field) ?? null);
  }, [field]);
  useEffect(() => () => trial.cancel(), []);
  const problems = useMemo(() => (schema === undefined ? [] : problemsOf(field, value)), [field, value]);
  const isRunning = trial.state.value.is === "running";
  const isLive = link.phase.value.is === "live";
  const run = (): void => {
    const options: CallOptions = target === "" ? {} : { agents: [target] };
    void trial.run(name, value, wantsStream, options);
  };
  return (
    <section class="panel try">
      <h2>Try it</h2>
      <p class="note">This is a real call, made in your name. Whatever the agent does with it, it does.</p>
      <form
        class="try-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isRawWrong && !isRunning) run();
        }}
      >
        <div class="try-fields">
          {schema === undefined || field.kind === "json" ? (
            <p class="quiet-line">
              {schema === undefined ? "There is no schema to make a form of: write JSON." : `No form for this (${field.kind === "json" ? field.why : ""}): write JSON.`}
            </p>
          ) : (
            <Form field={field} value={value} problems={touched.current ? problems : []} onChange={change} />
          )}
        </div>
        <RawJson value={value} onChange={change} onWrong={setRawWrong} />
        <div class="buttons try-go">
          <label class="inline">
            <input type="checkbox" checked={wantsStream} onInput={(event) => setStream(event.currentTarget.checked)} /> stream
          </label>
          <label class="inline">
            to{" "}
            <select value={target} onChange={(event) => setTarget(event.currentTarget.value)}>
              <option value="">whoever the hub chooses</option>
              {agents.map((id) => (
                <option key={id} value={id}>
                  {id}
                </option>
              ))}
            </select>
          </label>
          <button type="submit" class="primary" disabled={isRawWrong || isRunning || !isLive}>
            Call
          </button>
          {isRunning ? (
            <button type="button" onClick={() => trial.cancel()}>
              Cancel
            </button>
          ) : null}
          {touched.current && problems.length > 0 ? (
            <span class="hint">
              {problems
                .slice(0, 3)
                .map(({ path, text }) => `${placeOf(path) || "the value"} ${text}`)
                .join("; ")}
              . The hub will say more.
            </span>
          ) : null}
        </div>
      </form>
      <End trial={trial} />
      <Pieces trial={trial} />
    </section>
  );
}
