import type { JSX } from "preact";

import { to } from "../router.ts";
import type { CallRow } from "../state/calls.ts";
import { millis, time } from "../ui/format.ts";
import { Outcome } from "../ui/status.tsx";

/** One ended call in a short list; `from`: the agent on whose page it stands. */
export function CallLine({ row, from }: { row: CallRow; from?: string }): JSX.Element {
  const { capability, caller, targets } = row.view;
  const whom = targets.length === 0 ? "nobody" : targets.join(", ");
  const other = caller === from ? `→ ${whom}` : `${caller} →`;
  return (
    <li>
      <span class="mono when">{time(row.ended ?? row.began)}</span>
      <span class="grow">
        <a class="mono" href={to("calls", row.id)}>
          {capability}
        </a>{" "}
        <span class="mono of">{from === undefined ? `${caller} → ${whom}` : other}</span>
      </span>
      <Outcome outcome={row.outcome} />
      <span class="number">{millis(row.ms)}</span>
    </li>
  );
}
