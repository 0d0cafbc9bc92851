import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { isOperator, world } from "../hub/link.ts";
import { useQuery } from "../hub/query.ts";
import { to } from "../router.ts";
import { clock, useVersion } from "../state/frame.ts";
import type { OfferInfo } from "../state/views.ts";
import { AgentLink, Fact, Facts, OneHead } from "../ui/facts.tsx";
import { count, micros, rate, share, span } from "../ui/format.ts";
import { json } from "../ui/json.ts";
import { Empty, Failed, Loading } from "../ui/states.tsx";
import { AgentStatus } from "../ui/status.tsx";
import type { Listed } from "./capabilities.tsx";
import { TryIt } from "./try.tsx";

/** Providers that are listed. */
const SHOWN = 100;

function Schema({ title, schema }: { title: string; schema: unknown }): JSX.Element {
  return (
    <details class="schema" open>
      <summary>{title}</summary>
      {schema === undefined ? (
        <p class="quiet-line">None: the hub passes everything on.</p>
      ) : (
        <pre class="mono" tabIndex={0}>
          {json(schema)}
        </pre>
      )}
    </details>
  );
}

function About({ listed, offer }: { listed: Listed; offer: OfferInfo | undefined }): JSX.Element {
  useVersion("calls");
  const figures = world.calls.capabilities.get(listed.name);
  return (
    <section class="panel">
      {offer?.description === undefined ? null : <p class="description">{offer.description}</p>}
      <Facts>
        <Fact name="Offered by">{count(listed.offered_by)} agents</Fact>
        <Fact name="Version">{offer?.version ?? "–"}</Fact>
        <Fact name="Idempotent" hint="May run twice without harm">
          {offer?.idempotent === true ? "yes" : "no"}
        </Fact>
        <Fact name="Time">{offer?.timeout_ms === undefined ? "the hub’s default" : span(offer.timeout_ms)}</Fact>
        <Fact name="Rate limit">{offer?.qps_limit === undefined ? "none" : `${offer.qps_limit}/s each`}</Fact>
        <Fact name="Calls/s" hint="Ended calls, of the last minute that this page has seen">
          {rate(figures?.rate(clock.value) ?? 0)}
        </Fact>
        <Fact name="Success" hint="Of the newest 256 calls that this page has seen end">
          {share(figures?.success)}
        </Fact>
        <Fact name="p50, p95">
          {micros(figures?.quantile(0.5))}, {micros(figures?.quantile(0.95))}
        </Fact>
        {offer?.aliases === undefined && listed.policy_aliases === undefined ? null : (
          <Fact name="Also called">
            <span class="mono">{[...(offer?.aliases ?? []), ...(listed.policy_aliases ?? [])].join(", ")}</span>
          </Fact>
        )}
      </Facts>
    </section>
  );
}

function Providers({ listed, onChoose, chosen }: { listed: Listed; chosen: number; onChoose: (at: number) => void }): JSX.Element {
  return (
    <section class="panel">
      <h2>Who offers it ({count(listed.offered_by)})</h2>
      <ul class="lines">
        {listed.agents.slice(0, SHOWN).map((offer, at) => (
          <li key={offer.agent_id}>
            <span class="grow">
              <AgentLink id={offer.agent_id} />
              {offer.name !== undefined && offer.name !== listed.name ? <span class="of mono"> as {offer.name}</span> : null}
            </span>
            <AgentStatus status={offer.status} />
            <span class="of">{offer.version}</span>
            {at === chosen ? (
              <span class="tag">shown</span>
            ) : (
              <button type="button" class="small" aria-label={`show the offer of ${offer.agent_id}`} onClick={() => onChoose(at)}>
                show
              </button>
            )}
          </li>
        ))}
      </ul>
      {listed.offered_by > Math.min(SHOWN, listed.agents.length) ? (
        <p class="note">{count(Math.min(SHOWN, listed.agents.length))} of them are shown.</p>
      ) : null}
    </section>
  );
}

/** One capability: what it takes and gives, who has it, and a way to try it. */
export function CapabilityPage({ name }: { name: string }): JSX.Element {
  const [answer, again] = useQuery<{ capabilities: Listed[] }>("hub.capabilities.list", { name }, 5000);
  const [chosen, setChosen] = useState(0);
  const listed = answer.is === "loading" ? undefined : answer.value?.capabilities[0];
  const offer = listed?.agents[Math.min(chosen, listed.agents.length - 1)];
  return (
    <>
      <OneHead up={[to("capabilities"), "Capabilities"]} title={name}>
        <a href={to("calls", undefined, { q: name })}>Calls</a>
      </OneHead>
      {answer.is === "failed" ? <Failed error={answer.error} onRetry={again} /> : null}
      {answer.is === "loading" ? <Loading what="the capability" /> : null}
      {answer.is === "ok" && listed === undefined ? (
        <Empty title="Nobody has ever offered this">Or the hub has forgotten it since.</Empty>
      ) : null}
      {listed === undefined ? null : (
        <div class="stack">
          <About listed={listed} offer={offer} />
          {isOperator() ? (
            <TryIt name={name} offer={offer} agents={listed.agents.slice(0, SHOWN).map((one) => one.agent_id)} />
          ) : (
            <section class="panel">
              <h2>Try it</h2>
              <p class="quiet-line">Calling is for operators; your role is to look.</p>
            </section>
          )}
          <div class="columns">
            <section class="panel">
              <h2>Schemas{offer === undefined ? "" : ` of ${offer.agent_id}`}</h2>
              <Schema title="Takes" schema={offer?.input_schema} />
              <Schema title="Gives" schema={offer?.output_schema} />
            </section>
            <Providers listed={listed} chosen={chosen} onChoose={setChosen} />
          </div>
        </div>
      )}
    </>
  );
}
