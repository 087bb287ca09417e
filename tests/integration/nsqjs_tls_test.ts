/** nsqjs, unmodified, over TLS and compression. */
import { deepEqual, equal } from "node:assert/strict";
import { Buffer } from "node:buffer";
import { tlsAuthority, tlsPath } from "@sluice/shared/testing";
import { TestReader, TestWriter } from "./nsqjs.ts";
import { Service, TemporaryFolder } from "./process.ts";
import { eventually } from "./wait.ts";

const TLS = { tls: true, ca: Buffer.from(tlsAuthority()) };
const LAYERS = {
  TLS,
  snappy: { snappy: true },
  deflate: { deflate: true, deflateLevel: 3 },
  "TLS and snappy": { ...TLS, snappy: true },
  "TLS and deflate": { ...TLS, deflate: true },
};

for (const [name, options] of Object.entries(LAYERS)) {
  Deno.test(`nsqjs publishes and consumes over ${name}, large messages too`, async () => {
    await using folder = await TemporaryFolder.create();
    await using broker = await Service.broker(folder.path, [
      "--https-address=127.0.0.1:0",
      `--tls-cert=${tlsPath("server.pem")}`,
      `--tls-key=${tlsPath("server.key")}`,
    ]);
    await broker.createChannels("orders", "mail");
    await using writer = await TestWriter.connect(broker.tcpPort, options);
    await using reader = new TestReader("orders", "mail", {
      ...options,
      nsqdTCPAddresses: [broker.tcpAddress],
      maxInFlight: 10,
    });
    const bodies = [
      "small",
      "0123456789abcdef".repeat(8_000),
      ...Array.from({ length: 200 }, (_, number) => `m${number}`),
    ];
    for (const body of bodies.slice(0, 2)) await writer.publish("orders", body);
    await writer.publish("orders", bodies.slice(2));
    await reader.received(bodies.length);
    deepEqual(reader.bodies.toSorted(), bodies.toSorted());
    deepEqual(reader.errors, []);
    await eventually("an empty channel", async () => {
      const figures = await broker.channel("orders", "mail");
      return figures?.depth === 0 && figures.in_flight_count === 0;
    });
    const { text } = await broker.get("/stats?format=json");
    const [client] = JSON.parse(text).topics[0].channels[0].clients;
    equal(client.tls, "tls" in options);
    equal(
      [client.snappy, client.deflate].join(),
      ["snappy" in options, "deflate" in options].join(),
    );
  });
}
