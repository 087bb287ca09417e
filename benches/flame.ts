/**
 * A CPU profile of V8 as a flame graph (SVG) and as a table of where the time goes itself. Pure.
 */

/** What of a `.cpuprofile` is read. */
export interface CpuProfile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  /** Microseconds from each sample to the next. */
  readonly timeDeltas: readonly number[];
}

/** A place in the tree of calls. */
export interface ProfileNode {
  readonly id: number;
  readonly callFrame: {
    readonly functionName: string;
    readonly url: string;
    readonly lineNumber: number;
  };
  readonly children?: readonly number[];
}

/** A call with all that it called; times in microseconds. */
export interface FlameNode {
  readonly name: string;
  readonly file: string;
  selfUs: number;
  totalUs: number;
  readonly children: FlameNode[];
}

const WIDTH = 1200;
const ROW = 16;
const NAME_CHARACTER_WIDTH = 6.5;
/** Narrower ones are left out. */
const WIDTH_MIN = 0.5;
/** What is not work of the program. */
const IDLE = ["(idle)", "(program)"];

/** The tree of calls, without idle time. */
export function flameOf({ nodes, samples, timeDeltas }: CpuProfile): FlameNode {
  const selfUs = new Map<number, number>();
  for (const [index, id] of samples.entries()) {
    selfUs.set(id, (selfUs.get(id) ?? 0) + (timeDeltas[index] ?? 0));
  }
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const build = (node: ProfileNode): FlameNode => {
    const children = (node.children ?? []).flatMap((id) => {
      const child = byId.get(id);
      return child === undefined || IDLE.includes(child.callFrame.functionName)
        ? []
        : [build(child)];
    });
    const own = selfUs.get(node.id) ?? 0;
    const { functionName, url } = node.callFrame;
    return {
      name: functionName === "" ? "(anonymous)" : functionName,
      file: url.slice(url.lastIndexOf("/") + 1),
      selfUs: own,
      totalUs: own + children.reduce((sum, { totalUs }) => sum + totalUs, 0),
      children: children.sort((a, b) => b.totalUs - a.totalUs),
    };
  };
  return build(nodes[0]!);
}

/** Functions by their own time, most first: a share of all busy time each. */
export function selfTimes(root: FlameNode): { readonly name: string; readonly share: number }[] {
  const byName = new Map<string, number>();
  const visit = (node: FlameNode) => {
    const name = node.file === "" ? node.name : `${node.name} ${node.file}`;
    byName.set(name, (byName.get(name) ?? 0) + node.selfUs);
    node.children.forEach(visit);
  };
  visit(root);
  return [...byName]
    .map(([name, us]) => ({ name, share: us / root.totalUs }))
    .sort((a, b) => b.share - a.share);
}

/** The tree as an SVG: each call as wide as its share of the time, callees below. */
export function flameSvg(root: FlameNode, title: string): string {
  const rows: string[] = [];
  let depthMax = 0;
  const draw = (node: FlameNode, x: number, depth: number) => {
    const width = node.totalUs / root.totalUs * WIDTH;
    if (width < WIDTH_MIN) return;
    depthMax = Math.max(depthMax, depth);
    const label = node.file === "" ? node.name : `${node.name} ${node.file}`;
    const share = (node.totalUs / root.totalUs * 100).toFixed(1);
    const shown = label.slice(0, Math.floor(width / NAME_CHARACTER_WIDTH));
    const y = 24 + depth * ROW;
    rows.push(
      `<g><title>${escape(label)}: ${share} %</title>` +
        `<rect x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${ROW - 1}" ` +
        `fill="${color(label)}"/>` +
        (shown.length > 2
          ? `<text x="${(x + 2).toFixed(1)}" y="${y + 11}">${escape(shown)}</text>`
          : "") +
        `</g>`,
    );
    let at = x;
    for (const child of node.children) {
      draw(child, at, depth + 1);
      at += child.totalUs / root.totalUs * WIDTH;
    }
  };
  draw(root, 0, 0);
  const height = 24 + (depthMax + 1) * ROW + 4;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="monospace" font-size="10">`,
    `<rect width="${WIDTH}" height="${height}" fill="white"/>`,
    `<text x="4" y="15" font-size="12">${escape(title)}</text>`,
    ...rows,
    "</svg>",
    "",
  ].join("\n");
}

/** A warm color that is always the same for a name. */
function color(name: string): string {
  let hash = 0;
  for (const character of name) hash = (hash * 31 + character.charCodeAt(0)) % 360;
  return `hsl(${20 + hash % 40}, 80%, ${60 + hash % 15}%)`;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
