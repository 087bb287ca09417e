/**
 * Leaves the golden folder of this release, once: `deno run --allow-all tests/upgrade/main.ts`. A
 * folder that is there already is never written again, since the release that wrote it is out.
 */
import { FOLDERS } from "./golden_folders.ts";
import { PATH } from "./golden_broker.ts";
import { buildGolden } from "./recipe.ts";

if (import.meta.main) {
  const { disk, expectation } = await buildGolden();
  const folder = new URL(`${expectation.release}/`, FOLDERS);
  try {
    Deno.mkdirSync(folder);
  } catch (error) {
    if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
    console.error(`There is a golden folder of release ${expectation.release} already`);
    Deno.exit(1);
  }
  let bytes = 0;
  for (const path of disk.files()) {
    const name = path.slice(PATH.length + 1);
    if (name === "LOCK") continue;
    const file = new URL(`data/${name}`, folder);
    Deno.mkdirSync(new URL(".", file), { recursive: true });
    Deno.writeFileSync(file, disk.bytes(path));
    bytes += disk.bytes(path).length;
  }
  const text = JSON.stringify(expectation, null, 2);
  Deno.writeTextFileSync(new URL("expected.json", folder), `${text}\n`);
  console.log(
    `${disk.files().length} files, ${bytes} bytes, and ${text.length} bytes of expectation`,
  );
}
