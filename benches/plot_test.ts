import { deepStrictEqual as equal, match, ok, throws } from "node:assert/strict";
import { plotSvg } from "./plot.ts";

const PLOT = {
  title: "PUB & more",
  xLabel: "connections",
  yLabel: "messages/s",
  series: [
    { name: "a", points: [[1, 100], [10, 400], [100, 900]] },
    { name: "b", points: [[1, 50]] },
  ],
} as const;

Deno.test("plotSvg() draws every series with its figures, from 0 to a round number", () => {
  const svg = plotSvg(PLOT);
  match(svg, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"/);
  equal(svg.match(/<polyline /g)?.length, 2);
  equal(svg.match(/<circle /g)?.length, 4);
  ok(svg.includes("PUB &amp; more"));
  // A logarithmic axis: 10 is in the middle of 1 and 100.
  match(svg, /<polyline points="70,265 345,\d+ 620,65"/);
  ok(svg.includes(">1000<"), "the axis ends at a round number");
});

Deno.test("plotSvg() refuses what cannot be drawn", () => {
  throws(() => plotSvg({ ...PLOT, series: [] }), RangeError);
  throws(() => plotSvg({ ...PLOT, series: [{ name: "a", points: [[0, 1]] }] }), RangeError);
});
