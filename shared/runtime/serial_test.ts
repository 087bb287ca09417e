import { deepEqual, equal, rejects } from "node:assert/strict";
import { Serial } from "./serial.ts";

Deno.test("Serial.run() starts the first operation within the call", async () => {
  const serial = new Serial();
  equal(serial.idle, true);
  let started = false;
  const running = serial.run(() => {
    started = true;
    return Promise.resolve(1);
  });
  equal(started, true);
  equal(serial.idle, false);
  equal(await running, 1);
  await Promise.resolve();
  equal(serial.idle, true);
});

Deno.test("Serial.run() runs one operation at a time, in the order of the calls", async () => {
  const serial = new Serial();
  const steps: string[] = [];
  const operation = (name: string, turns: number) => async () => {
    steps.push(`${name} starts`);
    for (let turn = 0; turn < turns; turn++) await Promise.resolve();
    steps.push(`${name} ends`);
  };
  await Promise.all([
    serial.run(operation("a", 9)),
    serial.run(operation("b", 0)),
    serial.run(operation("c", 3)),
  ]);
  deepEqual(steps, ["a starts", "a ends", "b starts", "b ends", "c starts", "c ends"]);
});

Deno.test("Serial.run() goes on after an operation that fails", async () => {
  const serial = new Serial();
  const failing = serial.run(() => Promise.reject(new Error("no")));
  const next = serial.run(() => Promise.resolve(2));
  await rejects(failing, /no/);
  equal(await next, 2);
});
