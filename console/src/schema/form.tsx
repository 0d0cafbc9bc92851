import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { json } from "../ui/json.ts";
import type { Field } from "./field.ts";
import { at, initialOf, placeOf, withAt, type Path, type Problem } from "./value.ts";

interface Shared {
  value: unknown;
  problems: Problem[];
  onChange: (value: unknown) => void;
}

interface EntryProps extends Shared {
  field: Field;
  path: Path;
  label: string;
  isRequired: boolean;
}

const idOf = (path: Path): string => `field-${placeOf(path)}`;

function Note({ path, problems, text }: { path: Path; problems: Problem[]; text: string | undefined }): JSX.Element {
  const place = placeOf(path);
  const problem = problems.find((one) => placeOf(one.path) === place);
  return (
    <>
      {text === undefined ? null : <span class="hint">{text}</span>}
      {problem === undefined ? null : <span class="wrong">{problem.text}</span>}
    </>
  );
}

/** JSON in an entry of its own. What cannot be read stays in the entry, and out of the value. */
function JsonEntry(props: { id: string; value: unknown; onChange: (value: unknown) => void }): JSX.Element {
  const [text, setText] = useState(props.value === undefined ? "" : json(props.value));
  const [isWrong, setWrong] = useState(false);
  return (
    <>
      <textarea
        id={props.id}
        class="mono"
        rows={3}
        spellcheck={false}
        value={text}
        aria-invalid={isWrong}
        onInput={(event) => {
          const next = event.currentTarget.value;
          setText(next);
          if (next.trim() === "") return props.onChange(undefined);
          try {
            props.onChange(JSON.parse(next));
            setWrong(false);
          } catch {
            setWrong(true);
          }
        }}
      />
      {isWrong ? <span class="wrong">this is no JSON yet</span> : null}
    </>
  );
}

function Input({ field, path, value, onChange }: EntryProps): JSX.Element {
  const here = at(value, path);
  const id = idOf(path);
  const set = (next: unknown): void => onChange(withAt(value, path, next));
  switch (field.kind) {
    case "text": {
      const text = typeof here === "string" ? here : "";
      const onInput = (event: { currentTarget: { value: string } }): void => set(event.currentTarget.value);
      if (field.isLong) return <textarea id={id} rows={4} value={text} onInput={onInput} />;
      return <input id={id} type="text" value={text} onInput={onInput} autocomplete="off" />;
    }
    case "number":
      return (
        <input
          id={id}
          type="number"
          step={field.isInteger ? 1 : "any"}
          min={field.least}
          max={field.most}
          value={typeof here === "number" ? here : ""}
          onInput={({ currentTarget: input }) => set(input.value === "" ? undefined : input.valueAsNumber)}
        />
      );
    case "flag":
      return (
        <input id={id} type="checkbox" checked={here === true} onInput={(event) => set(event.currentTarget.checked)} />
      );
    case "choice": {
      const chosen = field.options.findIndex((option) => JSON.stringify(option) === JSON.stringify(here));
      return (
        <select
          id={id}
          value={String(chosen)}
          onChange={(event) => set(field.options[Number(event.currentTarget.value)])}
        >
          <option value="-1">–</option>
          {field.options.map((option, index) => (
            <option key={index} value={String(index)}>
              {typeof option === "string" ? option : JSON.stringify(option)}
            </option>
          ))}
        </select>
      );
    }
    case "json":
    case "list":
    case "object":
      return <JsonEntry id={id} value={here} onChange={set} />;
  }
}

function List(props: EntryProps & { field: Field & { kind: "list" } }): JSX.Element {
  const { field, path, value, label, onChange } = props;
  const here = at(value, path);
  const items: unknown[] = Array.isArray(here) ? here : [];
  const add = (): void => onChange(withAt(value, path, [...items, initialOf(field.item) ?? null]));
  return (
    <fieldset>
      <legend>
        {label} <span class="hint">{items.length}</span>
      </legend>
      <Note path={path} problems={props.problems} text={field.description} />
      {items.map((_, index) => (
        <div key={index} class="list-item">
          <Entry {...props} field={field.item} path={[...path, index]} label={`${index + 1}`} isRequired={true} />
          <button
            type="button"
            class="small"
            aria-label={`remove ${label} ${index + 1}`}
            onClick={() => onChange(withAt(value, [...path, index], undefined))}
          >
            ×
          </button>
        </div>
      ))}
      <button type="button" class="small" onClick={add} disabled={field.max !== undefined && items.length >= field.max}>
        Add
      </button>
    </fieldset>
  );
}

function Entry(props: EntryProps): JSX.Element {
  const { field, path, label, isRequired, problems } = props;
  if (field.kind === "list") return <List {...props} field={field} />;
  if (field.kind === "object") {
    return (
      <fieldset>
        <legend>{label}</legend>
        <Note path={path} problems={problems} text={field.description} />
        <Members {...props} members={field.members} path={path} />
      </fieldset>
    );
  }
  return (
    <div class={`entry of-${field.kind}`}>
      <label for={idOf(path)}>
        {label}
        {isRequired ? <span class="needed"> required</span> : null}
      </label>
      <Input {...props} />
      <Note path={path} problems={problems} text={field.description} />
    </div>
  );
}

function Members(props: Shared & { members: (Field & { kind: "object" })["members"]; path: Path }): JSX.Element {
  const { members, path, value, problems, onChange } = props;
  return (
    <>
      {members.map(({ name, isRequired, field }) => (
        <Entry
          key={name}
          field={field}
          path={[...path, name]}
          label={name}
          isRequired={isRequired}
          value={value}
          problems={problems}
          onChange={onChange}
        />
      ))}
    </>
  );
}

/** A form for a schema. */
export function Form({ field, ...shared }: Shared & { field: Field }): JSX.Element {
  if (field.kind === "object") return <Members {...shared} members={field.members} path={[]} />;
  return <Entry {...shared} field={field} path={[]} label={field.title ?? "value"} isRequired={true} />;
}

/** The whole value as text. What cannot be read is said, and changes nothing. */
export function RawJson(props: { value: unknown; onChange: (value: unknown) => void; onWrong: (isWrong: boolean) => void }): JSX.Element {
  const [text, setText] = useState(json(props.value));
  const [wrong, setWrong] = useState<string | undefined>(undefined);
  useEffect(() => {
    // What the form changed is shown here too, unless somebody is writing what already means the same.
    try {
      if (JSON.stringify(JSON.parse(text)) === JSON.stringify(props.value)) return;
    } catch {
      // Not to be read yet: the form's word counts.
    }
    setText(json(props.value));
    setWrong(undefined);
    props.onWrong(false);
  }, [props.value]);
  return (
    <div class="raw">
      <label for="raw-json">JSON</label>
      <textarea
        id="raw-json"
        class="mono"
        spellcheck={false}
        value={text}
        aria-invalid={wrong !== undefined}
        onInput={(event) => {
          const next = event.currentTarget.value;
          setText(next);
          try {
            props.onChange(next.trim() === "" ? null : JSON.parse(next));
            setWrong(undefined);
            props.onWrong(false);
          } catch (error) {
            setWrong((error as Error).message);
            props.onWrong(true);
          }
        }}
      />
      {wrong === undefined ? null : (
        <span class="wrong" role="alert">
          {wrong}
        </span>
      )}
    </div>
  );
}
