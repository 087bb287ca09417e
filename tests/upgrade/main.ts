/**
 * Leaves golden folders, once: `deno task golden`. The one of this release, and the one of the feature
 * levels that have come since. A folder that is there already is never written again: whoever has one
 * like it expects it to open.
 */
import type { SimDisk } from "@sluice/shared/testing";
import type { Expectation } from "./expectation.ts";
import { FOLDERS } from "./golden_folders.ts";
import { PATH } from "./golden_broker.ts";
import { buildLevelsGolden, LEVELS_NAME } from "./levels_recipe.ts";
import { buildGolden, type Golden } from "./recipe.ts";

/** Writes one; false when it is there already. */
function leave(name: string, { disk, expectation }: Golden): boolean {
  const folder = new URL(`${name}/`, FOLDERS);
  try {
    Deno.mkdirSync(folder);
  } catch (error) {
    if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
    console.error(`There is a golden folder ${name} already`);
    return false;
  }
  writeFiles(folder, disk, expectation);
  return true;
}

function writeFiles(folder: URL, disk: SimDisk, expectation: Expectation): void {
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

if (import.meta.main) {
  const golden = await buildGolden();
  const left = [
    leave(golden.expectation.release, golden),
    leave(LEVELS_NAME, await buildLevelsGolden()),
  ];
  if (!left.includes(true)) Deno.exit(1);
}
