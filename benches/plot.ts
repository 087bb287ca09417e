/**
 * Line plots as SVG, for the documentation: a logarithmic x axis, a y axis from 0, one line for each
 * series with a mark for each figure. Plain enough to be read as text and to be compared by a diff.
 */
import { showFigure } from "./summary.ts";

/** A line: figures by x. */
export interface Series {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

/** What a plot shows. */
export interface Plot {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly series: readonly Series[];
}

const WIDTH = 640;
const HEIGHT = 360;
const LEFT = 70;
const RIGHT = 20;
const TOP = 40;
const BOTTOM = 70;
const COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"];
const Y_TICKS = 5;

/** The plot as an SVG document. Throws `RangeError` without a point, or with an x that is not above 0. */
export function plotSvg({ title, xLabel, yLabel, series }: Plot): string {
  const points = series.flatMap((one) => one.points);
  if (points.length === 0) throw new RangeError(`Cannot plot "${title}": it has no point`);
  const xs = [...new Set(points.map(([x]) => x))].sort((a, b) => a - b);
  if (xs[0]! <= 0) throw new RangeError(`Cannot plot "${title}": x is above 0`);
  const [low, high] = [Math.log10(xs[0]!), Math.log10(xs.at(-1)!)];
  const top = niceTop(Math.max(...points.map(([, y]) => y)));
  const width = WIDTH - LEFT - RIGHT;
  const height = HEIGHT - TOP - BOTTOM;
  const xAt = (x: number) =>
    round(LEFT + (high === low ? 0.5 : (Math.log10(x) - low) / (high - low)) * width);
  const yAt = (y: number) => round(TOP + (1 - y / top) * height);
  const lines = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>`,
    `<text x="${WIDTH / 2}" y="20" text-anchor="middle" font-size="14">${escape(title)}</text>`,
  ];
  for (let tick = 0; tick <= Y_TICKS; tick++) {
    const y = (top * tick) / Y_TICKS;
    lines.push(
      `<line x1="${LEFT}" y1="${yAt(y)}" x2="${WIDTH - RIGHT}" y2="${yAt(y)}" stroke="#ddd"/>`,
      `<text x="${LEFT - 6}" y="${yAt(y) + 4}" text-anchor="end">${
        tick === 0 ? "0" : showFigure(y)
      }</text>`,
    );
  }
  for (const x of xs) {
    lines.push(
      `<text x="${xAt(x)}" y="${HEIGHT - BOTTOM + 18}" text-anchor="middle">${showX(x)}</text>`,
    );
  }
  lines.push(
    `<text x="${LEFT + width / 2}" y="${HEIGHT - BOTTOM + 36}" text-anchor="middle">${
      escape(xLabel)
    }</text>`,
    `<text x="16" y="${TOP + height / 2}" text-anchor="middle" transform="rotate(-90 16 ${
      TOP + height / 2
    })">${escape(yLabel)}</text>`,
  );
  for (const [index, { name, points: own }] of series.entries()) {
    const color = COLORS[index % COLORS.length]!;
    const path = own.map(([x, y]) => `${xAt(x)},${yAt(y)}`).join(" ");
    lines.push(`<polyline points="${path}" fill="none" stroke="${color}" stroke-width="2"/>`);
    for (const [x, y] of own) {
      lines.push(
        `<circle cx="${xAt(x)}" cy="${yAt(y)}" r="3" fill="${color}"><title>${escape(name)}: ${
          showFigure(y)
        }</title></circle>`,
      );
    }
    const legendX = LEFT + index * (width / series.length);
    lines.push(
      `<rect x="${round(legendX)}" y="${HEIGHT - 22}" width="10" height="10" fill="${color}"/>`,
      `<text x="${round(legendX + 14)}" y="${HEIGHT - 13}">${escape(name)}</text>`,
    );
  }
  lines.push("</svg>", "");
  return lines.join("\n");
}

/** The next round number: 1, 2 or 5 times a power of ten. */
function niceTop(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, Number.MIN_VALUE)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((top) => top >= value) ?? value;
}

function showX(x: number): string {
  if (x >= 2 ** 20 && x % 2 ** 20 === 0) return `${x / 2 ** 20}Mi`;
  return x >= 1000 && x % 1000 === 0 ? `${x / 1000}k` : String(x);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
