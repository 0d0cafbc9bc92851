import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { go } from "../router.ts";
import { tableKey, useKeysOf, type TableKeys } from "./keys.ts";
import { isNarrow } from "./screen.ts";

/** One column. */
export interface Column<R> {
  /** Names its width in the style sheet, and the sort in memory. */
  key: string;
  head: string;
  /** For whoever wonders what the figure is. */
  hint?: string;
  cell: (row: R) => ComponentChildren;
  /** What rows are sorted by; a column without it cannot be sorted by. */
  by?: (row: R) => string | number;
  /** Figures stand to the right. */
  isNumber?: boolean;
}

/** What a table shows. */
export interface TableProps<R> {
  /** Names its columns' widths, and what is remembered of it. */
  name: string;
  label: string;
  rows: R[];
  columns: Column<R>[];
  idOf: (row: R) => string;
  hrefOf: (row: R) => string;
  /** The order at first; none: the rows come in order. */
  sort?: { key: string; isDescending: boolean };
  toneOf?: (row: R) => string;
  empty: JSX.Element;
  /** Told whether the top is in sight: a live list stands still while somebody reads further down. */
  onTop?: (isTop: boolean) => void;
}

interface Memory {
  selected: string | undefined;
  top: number;
  sort: { key: string; isDescending: boolean } | undefined;
}

/** What is remembered of each table, so that coming back finds it as it was. */
const memories = new Map<string, Memory>();

/** Rows beyond the edges that are drawn as well, so that scrolling shows no gap. */
const BEYOND = 8;
export const ROW_PX = 30;
export const ROW_NARROW_PX = 46;

function sorted<R>(rows: R[], columns: Column<R>[], sort: Memory["sort"]): R[] {
  const by = columns.find((column) => column.key === sort?.key)?.by;
  if (by === undefined || sort === undefined) return rows;
  const sign = sort.isDescending ? -1 : 1;
  const keyed = rows.map((row) => ({ row, key: by(row) }));
  keyed.sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : 0));
  return keyed.map(({ row }) => row);
}

function Head<R>(props: { columns: Column<R>[]; sort: Memory["sort"]; onSort: (column: Column<R>) => void }): JSX.Element {
  const { columns, sort, onSort } = props;
  return (
    <div class="row head" role="row" aria-rowindex={1}>
      {columns.map((column) => {
        const isSorted = sort?.key === column.key;
        const order = isSorted ? (sort.isDescending ? "descending" : "ascending") : "none";
        return (
          <div
            key={column.key}
            class={`cell c-${column.key} ${column.isNumber === true ? "number" : ""}`}
            role="columnheader"
            aria-sort={column.by === undefined ? undefined : order}
            title={column.hint}
          >
            {column.by === undefined ? (
              column.head
            ) : (
              <button type="button" class="sort" onClick={() => onSort(column)}>
                {column.head}
                <span aria-hidden="true" class="arrow">
                  {isSorted ? (sort.isDescending ? "↓" : "↑") : ""}
                </span>
              </button>
            )}
          </div>
        );
      })}
    </div>
  );
}

/** A table of any length, of which only what is in sight is drawn. */
export function Table<R>(props: TableProps<R>): JSX.Element {
  const { name, label, columns, idOf, hrefOf, empty } = props;
  const fresh = (): Memory => ({ selected: undefined, top: 0, sort: props.sort });
  const memory = useRef(memories.get(name) ?? fresh()).current;
  memories.set(name, memory);
  const [, redraw] = useState(0);
  const [height, setHeight] = useState(600);
  const box = useRef<HTMLDivElement>(null);
  const rows = sorted(props.rows, columns, memory.sort);
  const rowPx = isNarrow.value ? ROW_NARROW_PX : ROW_PX;
  const draw = (): void => redraw((n) => n + 1);
  const latest = useRef({ rows, rowPx });
  latest.current = { rows, rowPx };

  const keys = useMemo(() => keysOf(memory, latest, box, idOf, hrefOf, draw), []);
  useEffect(() => useKeysOf(keys), []);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    element.scrollTop = memory.top;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const first = Math.max(0, Math.min(Math.floor(memory.top / rowPx), rows.length - 1) - BEYOND);
  const shown = rows.slice(first, first + Math.ceil(height / rowPx) + 2 * BEYOND);
  const onScroll = (event: Event): void => {
    memory.top = (event.currentTarget as HTMLElement).scrollTop;
    props.onTop?.(memory.top < rowPx);
    draw();
  };
  const onSort = (column: Column<R>): void => {
    const isSame = memory.sort?.key === column.key;
    memory.sort = { key: column.key, isDescending: isSame ? memory.sort?.isDescending !== true : column.isNumber === true };
    draw();
  };
  const isSelectedShown = shown.some((row) => idOf(row) === memory.selected);
  return (
    <div
      ref={box}
      class={`table t-${name}`}
      role="grid"
      aria-label={label}
      aria-rowcount={rows.length + 1}
      aria-activedescendant={isSelectedShown ? `row-${name}-${memory.selected!}` : undefined}
      tabIndex={0}
      onScroll={onScroll}
      onKeyDown={(event) => {
        if (event.target === box.current && tableKey(event, keys)) event.preventDefault();
      }}
    >
      <Head columns={columns} sort={memory.sort} onSort={onSort} />
      {rows.length === 0 ? (
        <div role="row" class="row-blank">
          <div role="gridcell">{empty}</div>
        </div>
      ) : (
        <div role="rowgroup" class="rows" style={{ height: `${rows.length * rowPx}px` }}>
          {shown.map((row, at) => {
            const id = idOf(row);
            return (
              <div
                key={id}
                id={`row-${name}-${id}`}
                class={`row ${props.toneOf?.(row) ?? ""}`}
                role="row"
                aria-rowindex={first + at + 2}
                aria-selected={id === memory.selected}
                style={{ transform: `translateY(${(first + at) * rowPx}px)` }}
                onClick={(event) => {
                  memory.selected = id;
                  // What is marked with the mouse is to be copied; a link goes where it goes.
                  if (String(getSelection()) !== "" || (event.target as HTMLElement).closest("a") !== null) return draw();
                  go(hrefOf(row));
                }}
              >
                {columns.map((column) => (
                  <div
                    key={column.key}
                    class={`cell c-${column.key} ${column.isNumber === true ? "number" : ""}`}
                    role="gridcell"
                  >
                    {column.cell(row)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      )}
    </div>
  );
}

function keysOf<R>(
  memory: Memory,
  latest: { current: { rows: R[]; rowPx: number } },
  box: { current: HTMLDivElement | null },
  idOf: (row: R) => string,
  hrefOf: (row: R) => string,
  draw: () => void,
): TableKeys {
  const at = (): number => latest.current.rows.findIndex((row) => idOf(row) === memory.selected);
  const select = (index: number): void => {
    const { rows, rowPx } = latest.current;
    const row = rows[Math.max(0, Math.min(index, rows.length - 1))];
    if (row === undefined) return;
    memory.selected = idOf(row);
    const element = box.current;
    if (element !== null) {
      const top = Math.max(0, Math.min(index, rows.length - 1)) * rowPx;
      // The head covers the first row's height.
      const space = element.clientHeight - rowPx;
      if (top < element.scrollTop) element.scrollTop = top;
      else if (top + rowPx > element.scrollTop + space) element.scrollTop = top + rowPx - space;
      memory.top = element.scrollTop;
    }
    draw();
  };
  return {
    move: (by) => select(at() < 0 ? 0 : at() + by),
    edge: (isEnd) => select(isEnd ? latest.current.rows.length - 1 : 0),
    open() {
      const row = latest.current.rows[at()];
      if (row !== undefined) go(hrefOf(row));
    },
    focus: () => box.current?.focus(),
  };
}
