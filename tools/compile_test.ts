/**
 * What makes binaries and images, checked as far as that can be without making them: a compiler fetches
 * a runtime that is not at hand everywhere. What it would put into a binary is bundled instead, and run
 * with the permissions that the binary would have.
 */
import assert from "node:assert/strict";
import { listFiles, readConfig, ROOT_PATH, taskCommands } from "./workspace.ts";

interface Permissions {
  readonly permissions: Readonly<Record<string, unknown>>;
}

const COMPILE_REGEXP = /^deno compile --frozen -P=([\w-]+) --no-prompt -o (\S+) (\S+)$/;

/** The services, by the task that compiles them. */
function compileTasks() {
  return [...taskCommands(readConfig("deno.json"))].flatMap(([name, command]) => {
    const [, service] = /^compile:(\w+)$/.exec(name) ?? [];
    if (service === undefined) return [];
    const [, permissions = "", output, main = ""] = COMPILE_REGEXP.exec(command) ?? [];
    return [{ service, command, permissions, output, main }];
  });
}

Deno.test("every service can be compiled, from its own main.ts, to its own name", () => {
  const tasks = compileTasks();
  const mains = listFiles("main.ts").filter((path) => /^\w+\/main\.ts$/.test(path))
    .filter((path) => !/^(?:tests|benches|tools)\//.test(path));
  assert.deepEqual(tasks.map(({ main }) => main).sort(), mains);
  for (const { service, command, output, main } of tasks) {
    assert.match(command, COMPILE_REGEXP);
    assert.equal(output, `dist/sluice-${service}`);
    assert.equal(main, `${service}/main.ts`);
  }
});

Deno.test("the image is made from a task and a binary that there are", () => {
  const dockerfile = Deno.readTextFileSync(`${ROOT_PATH}deploy/Dockerfile`);
  assert.match(dockerfile, /deno task "compile:\$\{SERVICE\}"/);
  assert.match(dockerfile, /cp "dist\/sluice-\$\{SERVICE\}" \/image\/sluice/);
  assert.match(dockerfile, /^ENTRYPOINT \["\/usr\/local\/bin\/sluice"\]$/m);
  const [, named] = /^# SERVICE is (.+)\. The image/m.exec(dockerfile) ?? [];
  assert.deepEqual(
    named?.split(/, | or /).sort(),
    compileTasks().map(({ service }) => service).sort(),
  );
  const [, version] = /^ARG DENO_VERSION=(\S+)$/m.exec(dockerfile) ?? [];
  assert.equal(version, Deno.version.deno);
});

for (const { service, permissions, main } of compileTasks()) {
  Deno.test(`what a binary of ${service} holds starts with the permissions it has`, async () => {
    const { permissions: sets } = JSON.parse(
      Deno.readTextFileSync(`${ROOT_PATH}deno.json`),
    ) as Permissions;
    assert.ok(Object.hasOwn(sets, permissions), `there is a permission set "${permissions}"`);
    const folder = await Deno.makeTempDir({ prefix: "sluice_bundle_" });
    try {
      const bundle = `${folder}/${service}.js`;
      await run("bundle", "--quiet", "-o", bundle, main);
      const config = `--config=${ROOT_PATH}deno.json`;
      const text = await run("run", "--quiet", config, `-P=${permissions}`, bundle, "--help");
      assert.match(text, /Usage|--help/);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}

async function run(...args: string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args,
    cwd: ROOT_PATH,
    env: { NO_COLOR: "1" },
    stdin: "null",
  }).output();
  assert.ok(success, new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout);
}
