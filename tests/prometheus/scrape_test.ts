/** A real Prometheus over a real broker: it takes what we tell, and evaluates the rules on it. */
import { equal, ok } from "node:assert/strict";
import { Process, Service, TemporaryFolder } from "../integration/process.ts";
import { eventually } from "../integration/wait.ts";
import { findPrometheus } from "./prometheus.ts";
import { RULES_PATH } from "./rules.ts";

const programs = await findPrometheus();

/** A port of loopback that nobody listened on a moment ago: Prometheus does not tell which it took. */
function freePort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return listener.addr.port;
}

Deno.test({
  name: "a real Prometheus scrapes a broker, and an alert fires on what it tells",
  // Where the programs cannot be had; CI asks for them and fails without.
  ignore: "missing" in programs,
  fn: async () => {
    if ("missing" in programs) return;
    await using folder = await TemporaryFolder.create();
    await Deno.mkdir(`${folder.path}/data`);
    // Two topics, of which one may be told of: an alert without a wait is made of that.
    await using broker = await Service.broker(`${folder.path}/data`, ["--metrics-topics-max=1"]);
    for (const topic of ["a", "b"]) await broker.createChannels(topic, "c");
    await broker.order("/pub?topic=a", "message");
    const rules = (await Deno.readTextFile(RULES_PATH)).replaceAll(/^ *for: .*\n/gm, "");
    await Deno.writeTextFile(`${folder.path}/rules.yml`, rules);
    await Deno.writeTextFile(
      `${folder.path}/prometheus.yml`,
      JSON.stringify({
        global: { scrape_interval: "500ms", evaluation_interval: "500ms" },
        rule_files: ["rules.yml"],
        scrape_configs: [{
          job_name: "sluice-broker",
          static_configs: [{ targets: [broker.httpAddress] }],
        }],
      }),
    );
    const address = `127.0.0.1:${freePort()}`;
    await using prometheus = new Process("prometheus", programs.prometheus, [
      `--config.file=${folder.path}/prometheus.yml`,
      `--storage.tsdb.path=${folder.path}/series`,
      `--web.listen-address=${address}`,
    ]);
    const ask = async (path: string) => {
      const response = await fetch(`http://${address}/api/v1/${path}`);
      const { data } = await response.json();
      return data;
    };
    const value = async (query: string): Promise<string | undefined> => {
      const { result } = await ask(`query?query=${encodeURIComponent(query)}`);
      return result[0]?.value[1];
    };
    await prometheus.logged(/Server is ready to receive web requests/);
    await eventually("the broker scraped", async () => await value("up") === "1");
    equal(await value('sluice_topic_messages_total{topic="a"}'), "1");
    equal(await value('sluice_topic_messages_total{topic="b"}'), undefined);
    equal(await value("sluice_channels"), "2");
    const state = async (alert: string): Promise<string> => {
      const { groups } = await ask("rules?type=alert");
      const rules = groups.flatMap((group: { rules: readonly unknown[] }) => group.rules);
      return rules.find(({ name }: { name: string }) => name === alert).state;
    };
    await eventually("the alert", async () => await state("SluiceMetricsOmitTopics") === "firing");
    equal(await state("SluiceStorageFault"), "inactive");
    const { activeTargets } = await ask("targets");
    equal(activeTargets[0].lastError, "");
    // Text that is no good would be refused as a whole.
    ok(Number(await value("scrape_samples_scraped")) > 100);
    await prometheus.terminate();
  },
});
