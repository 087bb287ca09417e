import { deepStrictEqual as equal } from "node:assert/strict";
import { parseQuery, QUERY_PARAMETERS_MAX } from "./query.ts";

function parsed(query: string): [string, string][] | null {
  const result = parseQuery(`http://host/path${query}`);
  return result === null ? null : [...result];
}

Deno.test("parseQuery() decodes keys and values, the first of equal keys counts", () => {
  const cases: [string, [string, string][]][] = [
    ["", []],
    ["?", []],
    ["?topic=t", [["topic", "t"]]],
    ["?topic=t&channel=c", [["topic", "t"], ["channel", "c"]]],
    ["?topic=a&topic=b", [["topic", "a"]]],
    ["?topic=", [["topic", ""]]],
    ["?topic", [["topic", ""]]],
    ["?&&topic=t&", [["topic", "t"]]],
    ["?a=b=c", [["a", "b=c"]]],
    ["?a=x+y%2Bz", [["a", "x y+z"]]],
    ["?%74opic=%C3%A9%23", [["topic", "é#"]]],
    ["?a=%ff%41b", [["a", "\ufffdAb"]]],
    ["?a=?b", [["a", "?b"]]],
    ["?a=b#c=d", [["a", "b"]]],
    ["#?a=b", []],
  ];
  for (const [query, expected] of cases) equal(parsed(query), expected, query);
});

Deno.test("parseQuery() refuses bad escapes and semicolons anywhere in the query", () => {
  for (
    const query of ["?a=%", "?a=%z1", "?a=%1", "?%zz=1", "?ok=1&a=%g0", "?a=b;c=d", "?a=%ff%z"]
  ) {
    equal(parsed(query), null, query);
  }
});

Deno.test("parseQuery() takes up to its limit of parameters and refuses one more", () => {
  const pairs = Array.from({ length: QUERY_PARAMETERS_MAX }, (_, index) => `k${index}=v`).join("&");
  equal(parsed(`?${pairs}`)?.length, QUERY_PARAMETERS_MAX);
  equal(parsed(`?${pairs}&more=v`), null);
});
