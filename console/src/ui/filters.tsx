import type { ComponentChildren, JSX } from "preact";

/** Words to look for; `/` goes there. */
export function Search(props: { value: string; label: string; onInput: (value: string) => void }): JSX.Element {
  return (
    <input
      type="search"
      class="search"
      data-search
      placeholder={`${props.label}  ( / )`}
      aria-label={props.label}
      value={props.value}
      autocomplete="off"
      spellcheck={false}
      onInput={(event) => props.onInput(event.currentTarget.value)}
    />
  );
}

/** One of a few. */
export function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: [T, ComponentChildren][];
  onChange: (value: T) => void;
}): JSX.Element {
  return (
    <div class="choice" role="group" aria-label={props.label}>
      {props.options.map(([value, label]) => (
        <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
          {label}
        </button>
      ))}
    </div>
  );
}
