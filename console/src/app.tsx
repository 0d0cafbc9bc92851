import type { JSX } from "preact";
import { useEffect } from "preact/hooks";

import { link, type Phase } from "./hub/link.ts";
import { logout } from "./hub/session.ts";
import { AgentPage } from "./pages/agent.tsx";
import { AgentsPage } from "./pages/agents.tsx";
import { CallPage } from "./pages/call.tsx";
import { CallsPage } from "./pages/calls.tsx";
import { CapabilitiesPage } from "./pages/capabilities.tsx";
import { CapabilityPage } from "./pages/capability.tsx";
import { LoginPage } from "./pages/login.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { TaskPage } from "./pages/task.tsx";
import { TasksPage } from "./pages/tasks.tsx";
import { route, to } from "./router.ts";
import { clock } from "./state/frame.ts";
import { Help } from "./ui/dialog.tsx";
import { span } from "./ui/format.ts";
import { isHelpOpen } from "./ui/keys.ts";
import { choose, isDark } from "./ui/screen.ts";
import { Empty } from "./ui/states.tsx";
import { Mark } from "./ui/status.tsx";

/** The pages, in the order in which they are offered. A page more is a line here and one in `shown`. */
const PAGES: [string, string][] = [
  ["overview", "Overview"],
  ["agents", "Agents"],
  ["capabilities", "Capabilities"],
  ["calls", "Calls"],
  ["tasks", "Tasks"],
];

function shown(page: string, id: string | undefined): JSX.Element {
  switch (page) {
    case "overview":
      return <OverviewPage />;
    case "agents":
      return id === undefined ? <AgentsPage /> : <AgentPage key={id} id={id} />;
    case "capabilities":
      return id === undefined ? <CapabilitiesPage /> : <CapabilityPage key={id} name={id} />;
    case "calls":
      return id === undefined ? <CallsPage /> : <CallPage key={id} id={id} />;
    case "tasks":
      return id === undefined ? <TasksPage /> : <TaskPage key={id} id={id} />;
    default:
      return (
        <Empty title="There is no such page">
          <a href={to("overview")}>Overview</a>
        </Empty>
      );
  }
}

function LinkMark({ phase }: { phase: Phase }): JSX.Element {
  switch (phase.is) {
    case "live":
      return <Mark tone="good">live</Mark>;
    case "lost":
      return <Mark tone="bad">disconnected</Mark>;
    case "silent":
      return <Mark tone="warn">stale</Mark>;
    case "ended":
      return <Mark tone="bad">ended</Mark>;
    case "starting":
    case "connecting":
    case "login":
      return <Mark tone="idle">connecting</Mark>;
  }
}

function Banner({ phase }: { phase: Phase }): JSX.Element | null {
  const ago = (since: number): string => span(clock.value - since);
  const again = (
    <button type="button" onClick={() => void link.start()}>
      Connect again
    </button>
  );
  switch (phase.is) {
    case "lost":
      return (
        <p class="banner bad">
          Disconnected for {ago(phase.since)}: what is shown may be old. Reconnecting… <span>{phase.why}</span>
        </p>
      );
    case "silent":
      return <p class="banner warn">The hub has not answered for {ago(phase.since)}: what is shown may be old.</p>;
    case "connecting":
      return <p class="banner">Connecting… {phase.why === undefined ? null : <span>{phase.why}</span>}</p>;
    case "ended":
      return (
        <p class="banner bad">
          {phase.code === "replaced"
            ? "Another page is connected in the place of this window."
            : `The hub ended this connection: ${phase.why}`}{" "}
          {again}
        </p>
      );
    case "starting":
    case "live":
    case "login":
      return null;
  }
}

function ThemeButton(): JSX.Element {
  const next = isDark.value ? "light" : "dark";
  return (
    <button type="button" class="quiet" aria-label={`Use the ${next} theme`} title={`Use the ${next} theme`} onClick={() => choose(next)}>
      <svg viewBox="0 0 16 16" aria-hidden="true" class="icon">
        <circle cx="8" cy="8" r="6" class="hollow" />
        <path d="M8 2a6 6 0 0 1 0 12Z" />
      </svg>
    </button>
  );
}

function User(): JSX.Element | null {
  const session = link.session.value;
  if (session === undefined) return null;
  const leave = async (): Promise<void> => {
    await logout();
    link.stop();
  };
  return (
    <span class="user">
      <span class="mono who" title={session.identity}>
        {session.agent_id}
      </span>
      <span class="tag">{session.role}</span>
      <button type="button" class="quiet" onClick={() => void leave()}>
        Log out
      </button>
    </span>
  );
}

/** The console. */
export function App(): JSX.Element {
  const phase = link.phase.value;
  const { page, id } = route.value;
  const title = PAGES.find(([name]) => name === page)?.[1] ?? "Agent-Reach";
  useEffect(() => {
    document.title = id === undefined ? `${title} · Agent-Reach` : `${id} · ${title} · Agent-Reach`;
  }, [title, id]);
  if (phase.is === "login") return <LoginPage />;
  return (
    <div class="shell">
      <header class="top">
        <a class="brand" href={to("overview")}>
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <path d="M16 16 7.5 9M16 16 24.5 9M16 16v9.5" class="spokes" />
            <circle cx="16" cy="16" r="4.6" />
            <circle cx="7" cy="8.5" r="3" />
            <circle cx="25" cy="8.5" r="3" />
            <circle cx="16" cy="26" r="3" />
          </svg>
          Agent-Reach
        </a>
        <nav aria-label="Pages">
          {PAGES.map(([name, label]) => (
            <a key={name} href={to(name)} aria-current={name === page ? "page" : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <div class="top-end">
          <span class="link-mark" role="status" aria-label="Connection">
            <LinkMark phase={phase} />
          </span>
          <User />
          <ThemeButton />
          <button type="button" class="quiet" aria-label="Keys" title="Keys (?)" onClick={() => (isHelpOpen.value = true)}>
            ?
          </button>
        </div>
      </header>
      <div role="status" class="banners">
        <Banner phase={phase} />
      </div>
      <main tabIndex={-1} class={`page p-${page} ${id === undefined ? "is-list" : "is-one"}`}>
        {shown(page, id)}
      </main>
      <Help />
    </div>
  );
}
