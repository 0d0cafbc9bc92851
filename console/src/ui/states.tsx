import type { CallError } from "@agent-reach/client";
import type { ComponentChildren, JSX } from "preact";

import { link } from "../hub/link.ts";

/** There is nothing, and that is how it is. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="blank">
      <p class="blank-title">{title}</p>
      {children === undefined ? null : <p>{children}</p>}
    </div>
  );
}

/** It is not known yet. */
export function Loading({ what }: { what: string }): JSX.Element {
  return (
    <div class="blank" role="status">
      <p class="blank-title">
        {link.phase.value.is === "live" ? `Loading ${what}…` : `Not connected. ${what} follow with the connection.`}
      </p>
    </div>
  );
}

/** What a failure says, without the code that stands beside it anyway. */
export function says({ code, message }: CallError): string {
  return message.startsWith(`${code}: `) ? message.slice(code.length + 2) : message;
}

/** The hub refused, or failed. */
export function Failed({ error, onRetry }: { error: CallError; onRetry?: () => void }): JSX.Element {
  const isForbidden = error.code === "unauthorized";
  return (
    <div class="blank" role="alert">
      <p class="blank-title">{isForbidden ? "Not for your role" : "The hub could not answer"}</p>
      <p>{says(error)}</p>
      {isForbidden || onRetry === undefined ? null : (
        <button type="button" onClick={onRetry}>
          Ask again
        </button>
      )}
    </div>
  );
}
