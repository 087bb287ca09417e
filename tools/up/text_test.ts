import assert from "node:assert/strict";
import { parseUpOptions, planUp, PORT_OFFSET_MAX } from "./plan.ts";
import * as say from "./text.ts";

function plan(offset = 0) {
  const options = parseUpOptions([`--port-offset=${offset}`], "/here", "/d");
  assert.ok(typeof options !== "string");
  return planUp(options);
}

Deno.test("busyText() names the ports and an offset that can be copied", () => {
  assert.equal(
    say.busyText(plan(), [4150]),
    `Port 4150 is in use on 127.0.0.1: is another broker, nsqd or "deno task up" running?
Stop it, or start on other ports: deno task up --port-offset 100`,
  );
  assert.match(
    say.busyText(plan(100), [4250, 4251, 4261]),
    /^Ports 4250, 4251 and 4261 are in use/,
  );
  assert.match(say.busyText(plan(100), [4250]), /--port-offset 200$/);
  assert.match(say.busyText(plan(PORT_OFFSET_MAX), [65_535]), /--port-offset 0$/);
});

Deno.test("examplesText() uses the ports that are really in use", () => {
  const text = say.examplesText(plan(10), say.PLAIN);
  assert.match(text, /curl -d 'hello' 'http:\/\/127\.0\.0\.1:4161\/pub\?topic=orders'/);
  assert.match(text, /curl 'http:\/\/127\.0\.0\.1:4171\/lookup\?topic=orders'/);
  assert.match(text, /nsq_tail --topic=orders --lookupd-http-address=127\.0\.0\.1:4171$/);
});

Deno.test("readyText() shows the start time, all services and the data folder", () => {
  assert.equal(
    say.readyText(plan(), 412.3, say.PLAIN),
    `Sluice is up after 412 ms

  broker     tcp 127.0.0.1:4150   http http://127.0.0.1:4151
  discovery  tcp 127.0.0.1:4160   http http://127.0.0.1:4161
  gateway    tcp 127.0.0.1:4170   http http://127.0.0.1:4171
  data       /d`,
  );
});

Deno.test("welcomeText() shows each step with its time, and the message", () => {
  const text = say.welcomeText({
    body: "Hello",
    id: "0123456789abcdef",
    attempts: 1,
    address: "127.0.0.1:4150",
    publishedMs: 1.26,
    foundMs: 12,
    receivedMs: 0.4,
    finishedMs: 1_234,
  }, say.PLAIN);
  assert.equal(
    text,
    `A message went through:

  published    1.3 ms  through the gateway; HTTP 200 means it is on disk
  found         12 ms  discovery says the topic is at 127.0.0.1:4150
  received     0.4 ms  id 0123456789abcdef, attempt 1
  finished      1.2 s  it will not come again

  "Hello"`,
  );
});

Deno.test("diedText() shows the last words and where the rest is", () => {
  const { broker } = plan();
  const text = say.diedText(broker, "exit code 1", ["a", "b"], false);
  assert.match(text, /^The broker ended by itself \(exit code 1\)/);
  assert.match(text, /\n {2}a\n {2}b\n\nThe whole log: \/d\/broker\.log$/);
  assert.match(say.diedText(broker, "SIGKILL", [], true), /\(it printed nothing\)\n$/);
});

Deno.test("lateText() and runningText() say where the logs are, unless they were shown", () => {
  assert.match(
    say.lateText("it took long", plan(), false),
    /it took long\nLogs: \/d\/broker\.log\n/,
  );
  assert.doesNotMatch(say.lateText("it took long", plan(), true), /Logs/);
  assert.match(say.runningText(plan(), false, say.PLAIN), /discovery\.log[\s\S]*Ctrl-C/);
  assert.doesNotMatch(say.runningText(plan(), true, say.PLAIN), /Logs/);
});

Deno.test("a style changes the look and not the text", () => {
  const bare = say.readyText(plan(), 1, say.ANSI).split("\x1b")
    .map((part, index) => index === 0 ? part : part.replace(/^\[\d+m/, ""))
    .join("");
  assert.equal(bare, say.readyText(plan(), 1, say.PLAIN));
});

Deno.test("helpText() names every option", () => {
  for (const option of ["--data", "--port-offset", "--once", "--verbose", "--help"]) {
    assert.ok(say.helpText().includes(`  ${option} `), option);
  }
});
