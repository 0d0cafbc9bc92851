import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { failure } from "../hub/query.ts";
import { isHelpOpen } from "./keys.ts";
import { says } from "./states.tsx";

/** A window of its own; Escape closes it. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => box.current?.showModal(), []);
  return (
    <dialog ref={box} aria-labelledby="dialog-title" onClose={props.onClose}>
      <h2 id="dialog-title">{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/** Something that is asked about before it is done. */
export interface ConfirmProps {
  /** What the button says. */
  act: string;
  title: string;
  children: ComponentChildren;
  run: () => Promise<unknown>;
}

/** A button that asks first, and says when it went wrong. */
export function Confirm({ act, title, children, run }: ConfirmProps): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<string | undefined>(undefined);
  const confirmed = async (): Promise<void> => {
    setBusy(true);
    try {
      await run();
      setOpen(false);
    } catch (error) {
      setWrong(says(failure(error)));
    }
    setBusy(false);
  };
  const open = (): void => {
    setWrong(undefined);
    setOpen(true);
  };
  return (
    <>
      <button type="button" class="danger" onClick={open}>
        {act}…
      </button>
      {isOpen ? (
        <Dialog title={title} onClose={() => setOpen(false)}>
          <p>{children}</p>
          {wrong === undefined ? null : (
            <p class="wrong" role="alert">
              {wrong}
            </p>
          )}
          <div class="buttons">
            <button type="button" onClick={() => setOpen(false)}>
              Back
            </button>
            <button type="button" class="danger solid" disabled={isBusy} onClick={() => void confirmed()}>
              {act}
            </button>
          </div>
        </Dialog>
      ) : null}
    </>
  );
}

const KEYS: [string[], string][] = [
  [["/"], "search on this page"],
  [["j", "↓"], "next row"],
  [["k", "↑"], "row before"],
  [["Home", "End"], "first and last row"],
  [["Enter"], "open the row"],
  [["Esc"], "leave the search; go back to the list"],
  [["p"], "stop and continue the live calls"],
  [["g", "o"], "overview"],
  [["g", "a"], "agents"],
  [["g", "b"], "capabilities"],
  [["g", "c"], "calls"],
  [["g", "t"], "tasks"],
  [["?"], "this list"],
];

/** The keys, when they are asked for. */
export function Help(): JSX.Element | null {
  if (!isHelpOpen.value) return null;
  const close = (): void => void (isHelpOpen.value = false);
  return (
    <Dialog title="Keys" onClose={close}>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <div key={what}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
