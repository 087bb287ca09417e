/**
 * Random scenarios: what a few clients send, valid and broken, pipelined and cut anywhere. Made so
 * that two servers can be compared although they hand out messages when they like: each connection has
 * a channel of its own, bodies are unique, and delays are either none or an hour.
 */
import type { SeededRandom } from "@sluice/shared/testing";

/** Bytes as Latin-1 text, or the id of the message with a body, which each server chose itself. */
export type Part = string | { readonly idOf: string };

/** What one client sends in one go. */
export interface Step {
  readonly connection: number;
  readonly commands: readonly (readonly Part[])[];
  /** Where the bytes are cut into writes, as fractions. */
  readonly cuts: readonly number[];
  /** Ends the direction to the server, or the connection, afterwards. */
  readonly end: "" | "end" | "close";
}

/** What is played. Topics and channels are named with `$t` and `$u` for the topics of the run. */
export type Scenario = readonly Step[];

const CONNECTIONS_MAX = 3;
const STEPS_MAX = 9;
const COMMANDS_MAX = 5;
const ID_OF_NOBODY = "0123456789abcdef";

/** Makes a scenario. */
export function makeScenario(random: SeededRandom): Scenario {
  const connections = random.between(1, CONNECTIONS_MAX);
  const steps: Step[] = [];
  const maker = new Maker(random);
  for (let connection = 0; connection < connections; connection++) {
    const commands: Part[][] = [[
      random.chance(0.97) ? "  V2" : random.pick(["  V1", "V2  ", "  "]),
    ]];
    if (random.chance(0.5)) commands.push(maker.identify());
    if (random.chance(0.75)) commands.push([`SUB $t c${connection}\n`]);
    if (random.chance(0.6)) commands.push([`RDY ${random.between(1, 5)}\n`]);
    steps.push({ connection, commands, cuts: maker.cuts(), end: "" });
  }
  const count = random.between(2, STEPS_MAX);
  for (let number = 0; number < count; number++) {
    const connection = random.below(connections);
    const commands: Part[][] = [];
    const many = random.between(1, COMMANDS_MAX);
    for (let command = 0; command < many; command++) commands.push(maker.command(connection));
    const end = random.chance(0.08) ? "end" : random.chance(0.03) ? "close" : "";
    // Of what comes before an early end, often only a part.
    if (end === "end" && random.chance(0.7)) commands.push([maker.torn()]);
    // First, or a message on its way may come before them or not.
    const early = commands.filter(([first]) => /^(?:RDY|CLS)\b/.test(String(first)));
    const late = commands.filter((command) => !early.includes(command));
    steps.push({ connection, commands: [...early, ...late], cuts: maker.cuts(), end });
  }
  return steps;
}

class Maker {
  readonly #random: SeededRandom;
  readonly #bodies: string[] = [];

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  cuts(): number[] {
    const count = this.#random.chance(0.5) ? 0 : this.#random.between(1, 4);
    return Array.from({ length: count }, () => this.#random.below(1000) / 1000).sort();
  }

  /** Mostly what a client would send; one in six is broken on purpose. */
  command(connection: number): Part[] {
    const random = this.#random;
    if (random.chance(0.16)) return this.#broken(connection);
    const kind = random.below(20);
    if (kind < 5) return ["PUB $t\n", this.#body()];
    if (kind < 6) return [`PUB ${random.pick(["$u", "$t#ephemeral"])}\n`, this.#body()];
    if (kind < 8) return ["MPUB $t\n", this.#batch(0)];
    if (kind < 9) return [`DPUB $t ${random.pick(["0", "3600000"])}\n`, this.#body()];
    if (kind < 12) return ["FIN ", this.#id(), "\n"];
    if (kind < 14) {
      return ["REQ ", this.#id(), ` ${random.pick(["0", "0", "3600000", "99999999"])}\n`];
    }
    if (kind < 15) return ["TOUCH ", this.#id(), "\n"];
    if (kind < 17) return [`RDY ${random.pick(["0", "1", "2", "5", "100", "2500"])}\n`];
    if (kind < 18) return ["NOP\n"];
    if (kind < 19) return random.chance(0.3) ? ["CLS\n"] : ["NOP\r\n"];
    return random.chance(0.5) ? this.identify() : [`SUB $t c${connection}\n`];
  }

  /** The beginning of a command. */
  torn(): string {
    const command = this.#random.pick([
      ["PUB $t\n", this.#body()],
      ["DPUB $t 0\n", this.#body()],
      ["MPUB $t\n", this.#batch(0)],
      ["IDENTIFY\n", sized('{"client_id":"me"}')],
      ["AUTH\n", sized("secret")],
      ["SUB $t c\n"],
    ]).join("");
    return command.slice(0, this.#random.between(1, command.length));
  }

  identify(): Part[] {
    const random = this.#random;
    const fields: Record<string, unknown> = {};
    if (random.chance(0.6)) fields["feature_negotiation"] = random.chance(0.9);
    const choices: Readonly<Record<string, readonly unknown[]>> = {
      heartbeat_interval: [-1, 0, 1000, 30000, 60000, 999, 60001, "1", 1000.5, null],
      output_buffer_size: [-1, 0, 1, 63, 64, 65536, 65537, 16384],
      // Without a timer, or with a long one, nsqd holds small messages back; ours come at once.
      output_buffer_timeout: [0, 1, 24, 25, 30001],
      msg_timeout: [0, 999, 1000, 60000, 900000, 900001, -1],
      sample_rate: [0, 0, 0, -1, 100],
      client_id: ["me", "", 7],
      user_agent: ["ua/1"],
      deflate_level: [0, 6, 9, "x"],
      unknown: [1, { a: [1] }],
    };
    for (const [name, values] of Object.entries(choices)) {
      // Few of the values are wrong, and few of the fields are there.
      if (random.chance(0.12)) fields[name] = random.pick(values);
    }
    const text = random.chance(0.06)
      ? random.pick(["[]", "{", "null", '"x"', "{}x", "", " {} ", "1", '{"a":1}{'])
      : JSON.stringify(fields);
    return ["IDENTIFY\n", sized(text)];
  }

  #broken(connection: number): Part[] {
    const random = this.#random;
    const name = this.#badName();
    const size = random.pick([-1, 0, 1, 1048577, 5242881, 2147483647, -2147483648]);
    const number = random.pick(["", "x", "-1", "+1", "1.5", "0x1", "00", "2501", "3600001", "x 2"]);
    const verb = random.pick([
      "FIN",
      "REQ",
      "TOUCH",
      "SUB",
      "PUB",
      "MPUB",
      "DPUB",
      "RDY",
      "CLS",
      "AUTH",
    ]);
    const broken: readonly (() => Part[])[] = [
      () => [`${random.pick(["ASDF", "pub $t", "", " ", "  NOP", "NOP ", "FIN\t", "PUB\r"])}\n`],
      () => [`${verb}\n`],
      () => [`${verb} \n`],
      () => [`${verb}  ${number}\n`],
      () => [`${verb} $t ${number} ${number}\n`],
      () => [`PUB ${name}\n`, this.#body()],
      () => [`MPUB ${name}\n`, this.#batch(0)],
      () => [`DPUB ${name} 0\n`, this.#body()],
      () => [`SUB ${name} c${connection}\n`],
      () => [`SUB $t ${name}\n`],
      () => ["PUB $t\n", int32(size)],
      () => ["DPUB $t 0\n", int32(size)],
      () => ["MPUB $t\n", int32(size)],
      () => ["IDENTIFY\n", int32(size)],
      () => ["AUTH\n", random.pick([sized("secret"), int32(size)])],
      () => [`DPUB $t ${number}\n`, this.#body()],
      () => [`RDY ${number}\n`],
      () => ["REQ ", this.#id(), ` ${number}\n`],
      () => ["FIN ", this.#id(), random.pick([" 1\n", "x\n", "\r\n", " \n"])],
      () => [`FIN ${ID_OF_NOBODY.slice(0, random.below(17))}\n`],
      () => [`TOUCH ${random.pick([ID_OF_NOBODY, "zzzzzzzzzzzzzzzz", "x"])}\n`],
      () => ["MPUB $t\n", this.#batch(random.pick([-3, -1, 1, 4]))],
      () => [
        "MPUB $t\n",
        int32(random.between(4, 40)),
        int32(random.pick([0, -1, 1, 7, 8, 1000000])),
      ],
      () => ["MPUB $t\n", int32(13), int32(2), sized("a"), int32(random.pick([0, -1, 1048577]))],
      () => [`${"x".repeat(random.pick([100, 5000, 16000, 16383, 16384, 20000]))}\n`],
      () => [`PUB $t ${"y".repeat(random.pick([100, 4000, 20000]))}\n`, this.#body()],
    ];
    return random.pick(broken)();
  }

  #badName(): string {
    const random = this.#random;
    return random.pick([
      "bad$",
      "",
      "a".repeat(64),
      "a".repeat(65),
      `${"a".repeat(54)}#ephemeral`,
      `${"a".repeat(55)}#ephemeral`,
      "#ephemeral",
      "a#ephemeral#ephemeral",
      "a:ephemeral",
      'quo"te',
      "back\\slash",
      "tab\there",
      "\x00nul",
      "\x7f",
      "caf\xc3\xa9",
      "\xff\xfe",
      "\xe2\x82",
      "\xf0\x9f\x98\x80",
      "\xc2\xad\xc2\x85",
      "\x07\x08\x0b\x0c\x1b",
      "\xef\xbb\xbf",
      "\xed\xa0\x80",
      "\xe2\x80\xa8",
    ]);
  }

  #id(): Part {
    const body = this.#random.chance(0.95) && this.#bodies.length > 0
      ? this.#random.pick(this.#bodies.slice(-6))
      : null;
    return body === null ? ID_OF_NOBODY : { idOf: body };
  }

  #newBody(): string {
    const body = `m${this.#bodies.length}${"\x00\xff".repeat(this.#random.below(3))}`;
    this.#bodies.push(body);
    return body;
  }

  #body(): string {
    return sized(this.#newBody());
  }

  /** A batch that announces `surplus` bytes more than it has. */
  #batch(surplus: number): string {
    const bodies = Array.from({ length: this.#random.between(1, 4) }, () => this.#body());
    const content = int32(bodies.length) + bodies.join("");
    return int32(content.length + surplus) + content;
  }
}

/** A number as the protocol writes it. */
export function int32(value: number): string {
  return String.fromCharCode(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255);
}

function sized(body: string): string {
  return int32(body.length) + body;
}

/** A scenario as lines for people. */
export function show(scenario: Scenario): string {
  return scenario.map(({ connection, commands, cuts, end }) => {
    const name = "abc"[connection] ?? "?";
    const lines = commands.map((parts) => {
      const shown = parts.map((part) =>
        typeof part === "string" ? escape(part) : `<id of ${part.idOf}>`
      );
      return `  ${name}> ${shown.join("")}`;
    });
    if (cuts.length > 0) lines.push(`  # cut at ${cuts.join(", ")}`);
    if (end !== "") lines.push(`  ${name} ${end}`);
    return lines.join("\n");
  }).join("\n");
}

function escape(text: string): string {
  const shown = JSON.stringify(text).slice(1, -1).replaceAll(/\\u00(..)/g, "\\x$1")
    .replaceAll(/[\x7f-\xff]/g, (letter) => `\\x${letter.charCodeAt(0).toString(16)}`);
  return shown.length > 200 ? `${shown.slice(0, 60)}...(${text.length} bytes)` : shown;
}
