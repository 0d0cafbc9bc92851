import type { ComponentChildren, JSX } from "preact";

import { to } from "../router.ts";

/** What is known of one thing, as pairs. */
export function Facts({ children }: { children: ComponentChildren }): JSX.Element {
  return <dl class="facts">{children}</dl>;
}

export function Fact({ name, hint, children }: { name: string; hint?: string; children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt title={hint}>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** The head of a page about one thing, with the way back; Escape takes it. */
export function OneHead(props: { up: [string, string]; title: string; children?: ComponentChildren }): JSX.Element {
  const [href, label] = props.up;
  return (
    <header class="one-head">
      <a href={href} data-up class="up">
        ← {label}
      </a>
      <h1 class="mono">{props.title}</h1>
      <div class="one-end">{props.children}</div>
    </header>
  );
}

export function AgentLink({ id }: { id: string }): JSX.Element {
  return (
    <a class="mono" href={to("agents", id)}>
      {id}
    </a>
  );
}

export function CapabilityLink({ name }: { name: string }): JSX.Element {
  return (
    <a class="mono" href={to("capabilities", name)}>
      {name}
    </a>
  );
}

/** A share of something as a bar, with its words beside it. */
export function Bar({ part, tone = "" }: { part: number; tone?: string }): JSX.Element {
  return (
    <span class={`bar ${tone}`} aria-hidden="true">
      <span style={{ width: `${Math.max(0, Math.min(1, part)) * 100}%` }} />
    </span>
  );
}
