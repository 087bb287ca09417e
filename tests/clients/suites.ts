/**
 * The test suites of others: what each needs, how its broker is started, what it comes to against
 * nsqd 1.3.0, and where Sluice differs on purpose. Most scripts are the kit's; see its README.
 */
import type { Difference, Format } from "./verdict.ts";

/** A program that must be there for a suite. */
export type Tool = "go" | "cargo" | "node" | "npm" | "python3" | "curl" | "openssl" | "nsq";

/** Where the broker of a suite comes from. */
export type Start =
  /** The suite starts it itself, by the commands in `NSQD` and `NSQLOOKUPD`. */
  | "by the suite"
  /** We start it on 127.0.0.1:4150 and 4151, which the suite has written into it. */
  | "fixed ports"
  /** As above, with TLS and the suite's own certificates. */
  | "fixed ports with TLS"
  /** We start it and a lookup service on free ports, named in the environment. */
  | "free ports with lookup";

/** A suite. */
export interface Suite {
  readonly name: string;
  /** What is run, under the kit unless it is ours. */
  readonly script: string;
  readonly ours?: true;
  readonly what: string;
  readonly tools: readonly Tool[];
  /** The newest Python that the suite runs on, as its minor version. */
  readonly pythonMinorMax?: number;
  readonly start: Start;
  /** Ports that must be free. */
  readonly ports: readonly number[];
  readonly env?: Readonly<Record<string, string>>;
  readonly format: Format;
  /** How many tests pass against nsqd 1.3.0. */
  readonly passedByNsqd: number;
  readonly differences: readonly Difference[];
}

/** All suites, the quick ones first. */
export const SUITES: readonly Suite[] = [
  {
    name: "go-nsq",
    script: "go-nsq.sh",
    what: "go-nsq 1.1.0 (Go)",
    tools: ["go"],
    start: "fixed ports with TLS",
    ports: [4150, 4151],
    format: "go",
    passedByNsqd: 24,
    differences: [],
  },
  {
    name: "nsq-go",
    script: "nsq-go.sh",
    what: "segmentio/nsq-go 1.2.5 (Go)",
    tools: ["go"],
    start: "fixed ports",
    ports: [4150, 4151],
    format: "go",
    passedByNsqd: 16,
    differences: [],
  },
  {
    name: "nsq-tools",
    script: "nsq-tools.sh",
    what: "NSQ's utilities and nsqadmin 1.3.0",
    tools: ["nsq", "curl", "python3"],
    start: "free ports with lookup",
    ports: [],
    format: "check",
    passedByNsqd: 43,
    differences: [],
  },
  {
    name: "nsqjs",
    script: "nsqjs.sh",
    what: "nsqjs 0.13.0 (npm)",
    tools: ["node", "npm"],
    start: "by the suite",
    // The suite goes on by 50 for each of its tests.
    ports: [4150, 4151, 4200, 4201],
    // A broker has 5 s to start on a loaded machine, not mocha's 2 s.
    env: { ALL: "1", TIMEOUT: "10000" },
    format: "mocha",
    passedByNsqd: 171,
    differences: [],
  },
  {
    name: "gnsq",
    script: "gnsq.sh",
    what: "gnsq 1.0.2 (PyPI)",
    tools: ["python3"],
    pythonMinorMax: 11,
    start: "by the suite",
    ports: [],
    env: { ALL: "1" },
    format: "pytest",
    passedByNsqd: 108,
    differences: [],
  },
  {
    name: "pynsq",
    script: "pynsq.sh",
    ours: true,
    what: "pynsq 0.9.1 (PyPI), by a script of ours",
    tools: ["python3", "openssl"],
    pythonMinorMax: 11,
    start: "by the suite",
    ports: [],
    format: "check",
    passedByNsqd: 14,
    differences: [],
  },
  {
    name: "squeaky",
    script: "squeaky.sh",
    ours: true,
    what: "squeaky 2.6.0 (npm)",
    tools: ["node", "npm"],
    start: "fixed ports",
    // Its own lookup service for tests listens on the third and fourth.
    ports: [4150, 4151, 41611, 41616],
    format: "tap",
    passedByNsqd: 34,
    differences: [{
      test: "can dpublish",
      reason: "it defers by 1 ms and needs the broker to be 50 ms late with it, as nsqd is; " +
        "Sluice delivers when the message is due",
    }, {
      test: "can keep a message alive",
      reason: "it wants a message that is deferred by 2000 ms to take more than 2000 ms; " +
        "Sluice may deliver in the very millisecond",
      either: true,
    }],
  },
  {
    name: "ansq",
    script: "ansq.sh",
    what: "ansq 0.3.0 (PyPI)",
    tools: ["python3"],
    pythonMinorMax: 12,
    start: "by the suite",
    ports: [4150, 4151, 4160, 4161, 4250, 4251],
    format: "pytest",
    passedByNsqd: 107,
    differences: [],
  },
  {
    name: "nsq-async-rs",
    script: "nsq-async-rs.sh",
    what: "nsq-async-rs 0.1.10 (crate)",
    tools: ["cargo"],
    start: "fixed ports",
    ports: [4150, 4151],
    format: "cargo",
    passedByNsqd: 12,
    differences: [],
  },
  {
    name: "tokio-nsq",
    script: "tokio-nsq.sh",
    what: "tokio-nsq 0.14.0 (crate)",
    tools: ["cargo", "node", "curl"],
    start: "by the suite",
    ports: [4150, 4151, 4160, 4161, 4250, 4251, 8080],
    format: "cargo",
    passedByNsqd: 10,
    differences: [],
  },
];
