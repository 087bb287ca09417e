import { deepStrictEqual as equal, match, rejects } from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { SystemDatagrams } from "./system_datagram.ts";

Deno.test("SystemDatagrams sends each packet whole to the host that was named", async () => {
  const receiver = createSocket("udp4");
  const got: string[] = [];
  const all = Promise.withResolvers<void>();
  receiver.on("message", (packet: Uint8Array) => {
    if (got.push(new TextDecoder().decode(packet)) === 2) all.resolve();
  });
  receiver.bind(0, "127.0.0.1");
  await once(receiver, "listening");
  const sender = await new SystemDatagrams().connect("127.0.0.1", receiver.address().port);
  await sender.send(new TextEncoder().encode("one"));
  await sender.send(new TextEncoder().encode("two"));
  await all.promise;
  equal(got, ["one", "two"]);
  sender.close();
  sender.close();
  await rejects(sender.send(new Uint8Array(1)), { name: "ConnectionError" });
  receiver.close();
  await once(receiver, "close");
});

Deno.test("SystemDatagrams reports a packet that is too large, and goes on", async () => {
  const sender = await new SystemDatagrams().connect("127.0.0.1", 9);
  await rejects(sender.send(new Uint8Array(70_000)), (error: Error) => {
    equal(error.name, "ConnectionError");
    match(error.message, /^Cannot send to 127\.0\.0\.1:9: /);
    return true;
  });
  await sender.send(new Uint8Array(1));
  sender.close();
});

Deno.test("SystemDatagrams.connect() rejects a host that there is not", async () => {
  // Too long to be a name, so that nobody is asked for it.
  await rejects(new SystemDatagrams().connect("x".repeat(300), 9), {
    name: "ConnectionError",
  });
});
