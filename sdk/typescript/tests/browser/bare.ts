/** A page that Playwright does not hold: it keeps its own pages visible and focused, and those never freeze. */

import type { Browser, CDPSession } from "playwright-core";

interface Answer {
  id: number;
  result?: unknown;
  error?: { message: string };
}
interface Evaluated {
  result: { value?: unknown };
  exceptionDetails?: { exception?: { description?: string } };
}

/** One tab, in a context of its own. */
export class BarePage {
  readonly #browser: CDPSession;
  readonly #session: string;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #nextId = 0;

  private constructor(
    browser: CDPSession,
    session: string,
    readonly context: string,
  ) {
    this.#browser = browser;
    this.#session = session;
    browser.on("Target.receivedMessageFromTarget", ({ sessionId, message }) => {
      const answer = JSON.parse(message) as Answer;
      if (sessionId === session) this.#waiting.get(answer.id)?.(answer);
    });
  }

  /** Opens `url`, and waits until its document is complete. */
  static async open(browser: Browser, url: string): Promise<BarePage> {
    const cdp = await browser.newBrowserCDPSession();
    const { browserContextId } = await cdp.send("Target.createBrowserContext");
    const { targetId } = await cdp.send("Target.createTarget", { url, browserContextId });
    const { sessionId } = await cdp.send("Target.attachToTarget", { targetId, flatten: false });
    const page = new BarePage(cdp, sessionId, browserContextId);
    await page.evaluate("new Promise(go => document.readyState === 'complete' ? go() : addEventListener('load', go))");
    return page;
  }

  async #send(method: string, params: object): Promise<unknown> {
    const id = (this.#nextId += 1);
    const answered = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve));
    const message = JSON.stringify({ id, method, params });
    await this.#browser.send("Target.sendMessageToTarget", { sessionId: this.#session, message });
    const { result, error } = await answered;
    this.#waiting.delete(id);
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  /** What an expression, or its promise, comes to in the page. */
  async evaluate<T>(expression: string): Promise<T> {
    const asked = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = (await this.#send("Runtime.evaluate", asked)) as Evaluated;
    if (exceptionDetails !== undefined) throw new Error(exceptionDetails.exception?.description);
    return result.value as T;
  }

  /** Hides the page and stops all that it does, as a browser does with one that was long out of sight. */
  freeze(): Promise<unknown> {
    return this.#send("Page.setWebLifecycleState", { state: "frozen" });
  }

  /** Lets it go on. */
  wake(): Promise<unknown> {
    return this.#send("Page.setWebLifecycleState", { state: "active" });
  }

  /** Closes it, with its context. */
  async close(): Promise<void> {
    await this.#browser.send("Target.disposeBrowserContext", { browserContextId: this.context });
    await this.#browser.detach();
  }
}
