import { effect, signal } from "@preact/signals";

/** Whether the window is as narrow as a phone. */
export const isNarrow = signal(false);

/** Light or dark as the system says, unless somebody chose. */
export type Theme = "system" | "light" | "dark";
const KEPT = "agent-reach.theme";

function kept(): Theme {
  try {
    const theme = localStorage.getItem(KEPT);
    return theme === "light" || theme === "dark" ? theme : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>("system");
/** Whether it is dark now: charts are drawn, and cannot look at the style sheet each time. */
export const isDark = signal(false);

/** Follows window and system from now on. */
export function follow(): void {
  const narrow = matchMedia("(max-width: 720px)");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const systemIsDark = signal(dark.matches);
  isNarrow.value = narrow.matches;
  narrow.addEventListener("change", () => (isNarrow.value = narrow.matches));
  dark.addEventListener("change", () => (systemIsDark.value = dark.matches));
  theme.value = kept();
  effect(() => {
    isDark.value = theme.value === "dark" || (theme.value === "system" && systemIsDark.value);
    document.documentElement.dataset["theme"] = isDark.value ? "dark" : "light";
  });
}

/** Chooses, and remembers it in this browser. */
export function choose(chosen: Theme): void {
  theme.value = chosen;
  try {
    if (chosen === "system") localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, chosen);
  } catch {
    // It holds for this page then.
  }
}
