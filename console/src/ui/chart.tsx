import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import { isDark } from "./screen.ts";

/** One line of a chart. */
export interface Line {
  label: string;
  /** A variable of the style sheet. */
  colour: string;
  isFilled?: boolean;
  dash?: number[];
}

/** What a chart shows. */
export interface ChartProps {
  title: string;
  /** Said beside the title: where the figures come from. */
  note?: string;
  lines: Line[];
  /** Seconds since the Unix epoch, then the values of each line. */
  data: (number | null | undefined)[][];
  /** Values as people read them. */
  format: (value: number) => string;
  /** What is counted: an axis with half a call is none. */
  unit?: "whole" | "bytes";
  height?: number;
}

const colourOf = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Steps of an axis. */
const SECONDS = [1, 5, 10, 15, 30, 60, 120, 300, 600];
const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const BYTES = Array.from({ length: 44 }, (_, power) => 2 ** power);

function options({ lines, format, unit, height = 150 }: ChartProps, width: number): uPlot.Options {
  const axis = { stroke: colourOf("--muted"), font: "11px ui-sans-serif, system-ui, sans-serif" };
  const quiet = { stroke: colourOf("--line-soft"), width: 1 };
  const series = lines.map((line) => ({
    label: line.label,
    stroke: colourOf(line.colour),
    width: 1.5,
    points: { show: false },
    ...(line.isFilled === true ? { fill: `${colourOf(line.colour)}22` } : {}),
    ...(line.dash === undefined ? {} : { dash: line.dash }),
  }));
  return {
    width,
    height,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 26, 0, 0],
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, ticks: { show: false }, size: 22, space: 80, incrs: SECONDS, values: times },
      {
        ...axis,
        grid: quiet,
        ticks: { show: false },
        size: 58,
        space: 34,
        values: (_, ticks) => ticks.map(format),
        ...(unit === undefined ? {} : { incrs: unit === "whole" ? WHOLE : BYTES }),
      },
    ],
    series: [{}, ...series],
  };
}

function times(_: uPlot, ticks: number[]): string[] {
  return ticks.map((at) => new Date(at * 1000).toTimeString().slice(0, 8));
}

function lastOf(values: (number | null | undefined)[] | undefined): number | undefined {
  return values?.findLast((value) => value !== null && value !== undefined) ?? undefined;
}

/** Lines over time, with their newest values in words: a picture alone says nothing to who cannot see it. */
export function Chart(props: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined as never);
  const dark = isDark.value;
  const latest = useRef(props);
  latest.current = props;
  const isEmpty = (props.data[0]?.length ?? 0) < 2;
  useEffect(() => {
    const element = box.current;
    if (element === null || isEmpty) return;
    const made = new uPlot(options(latest.current, element.clientWidth), latest.current.data as uPlot.AlignedData, element);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth !== made.width) made.setSize({ width: element.clientWidth, height: made.height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = undefined as never;
    };
  }, [dark, isEmpty]);
  useEffect(() => {
    // eslint-disable-next-line @typescript-eslint/no-unnecessary-condition -- there is none while there is no data
    plot.current?.setData(props.data as uPlot.AlignedData);
  }, [props.data]);
  return (
    <section class="panel chart">
      <header>
        <h2>{props.title}</h2>
        <ul class="legend">
          {props.lines.map((line, at) => {
            const value = lastOf(props.data[at + 1]);
            return (
              <li key={line.label} class={`legend-item ${line.colour.slice(2)}`}>
                {line.label} <b>{value === undefined ? "–" : props.format(value)}</b>
              </li>
            );
          })}
        </ul>
      </header>
      {isEmpty ? <p class="chart-blank">Collecting…</p> : <div ref={box} class="plot" aria-hidden="true" />}
      {props.note === undefined ? null : <p class="note">{props.note}</p>}
    </section>
  );
}
