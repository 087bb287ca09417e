import { equal, ok, rejects } from "node:assert/strict";
import { ConnectionError } from "../runtime/mod.ts";
import { SimNetwork } from "./mod.ts";

Deno.test("SimNetwork keeps names apart, and 0.0.0.0 answers for all of them", async () => {
  const network = new SimNetwork();
  const first = network.listen("broker-0", 4150);
  const second = network.listen("broker-1", 4150);
  const near = await network.connect("broker-1", 4150, 1);
  const far = await second.accept();
  equal(far?.localAddress, "broker-1:4150");
  await rejects(network.connect("broker-2", 4150, 1), /nobody listens/);
  const any = network.listen("0.0.0.0", 4150);
  const other = await network.connect("broker-2", 4150, 1);
  ok(await any.accept());
  for (const open of [near, far, other, first, second, any]) open?.close();
});

Deno.test("SimNetwork refuses a connection beyond the backlog", async () => {
  const network = new SimNetwork({ backlogMax: 1 });
  const listener = network.listen("host", 1);
  const first = await network.connect("host", 1, 1);
  await rejects(network.connect("host", 1, 1), ConnectionError);
  const accepted = await listener.accept();
  const second = await network.connect("host", 1, 1);
  for (const open of [first, accepted, second, listener]) open?.close();
  equal(network.openEnds, 0);
});

Deno.test("SimNetwork closes what was never accepted when the listener closes", async () => {
  const network = new SimNetwork();
  const listener = network.listen("host", 1);
  const near = await network.connect("host", 1, 1);
  listener.close();
  equal(await near.read(new Uint8Array(1)), null);
  equal(network.openEnds, 1);
  near.close();
  equal(network.openEnds, 0);
});

Deno.test("SimNetwork connections hold only the bytes they are told to", async () => {
  const network = new SimNetwork({ bufferBytesMax: 2 });
  const listener = network.listen("::1", 1);
  const near = await network.connect("::1", 1, 1);
  equal(near.remoteAddress, "[::1]:1");
  const writing = near.writeAll(Uint8Array.of(1, 2, 3));
  near.close();
  await rejects(writing, ConnectionError);
  listener.close();
});
