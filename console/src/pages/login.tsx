import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { link } from "../hub/link.ts";
import { login } from "../hub/session.ts";

/** Who has no session says a token. It is sent once, and kept nowhere in the page. */
export function LoginPage(): JSX.Element {
  const [token, setToken] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<string | undefined>(undefined);
  const submit = async (): Promise<void> => {
    setBusy(true);
    const asked = await login(token.trim());
    setBusy(false);
    if (asked.is === "ok") {
      setToken("");
      return void link.start();
    }
    setWrong(asked.is === "none" ? "This is not a token of this hub." : asked.why);
  };
  return (
    <main class="login">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <h1>Agent-Reach</h1>
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="current-password"
          required
          value={token}
          aria-describedby="token-hint"
          onInput={(event) => setToken(event.currentTarget.value)}
        />
        <p class="hint" id="token-hint">
          Made by <code>agent-reach token add NAME --role viewer</code> on the hub’s machine. A development hub prints a
          link that logs in by itself.
        </p>
        {wrong === undefined ? null : (
          <p class="wrong" role="alert">
            {wrong}
          </p>
        )}
        <button type="submit" class="primary" disabled={isBusy || token.trim() === ""}>
          Log in
        </button>
      </form>
    </main>
  );
}
