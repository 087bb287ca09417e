/**
 * The golden folders on disk: `folders/NAME/data` with the files, `folders/NAME/expected.json`. NAME is
 * the release that left the folder, or `levels-N` for what has come since a release and needs feature
 * levels up to N: a folder of what the format can hold that the releases before could not. Either is
 * written once and has to open from then on.
 */
import { SimDisk } from "@sluice/shared/testing";
import type { Expectation } from "./expectation.ts";
import { PATH } from "./golden_broker.ts";

/** Where they are. */
export const FOLDERS = new URL("./folders/", import.meta.url);

/** Their names. */
export function goldenReleases(): string[] {
  return [...Deno.readDirSync(FOLDERS)].map(({ name }) => name).sort();
}

/** What a folder holds. */
export function readExpectation(release: string): Expectation {
  const text = Deno.readTextFileSync(new URL(`${release}/expected.json`, FOLDERS));
  return JSON.parse(text) as Expectation;
}

/** A copy of a folder. */
export async function copyGolden(release: string): Promise<SimDisk> {
  const disk = new SimDisk();
  const root = new URL(`${release}/data/`, FOLDERS);
  const copy = async (from: URL, to: string) => {
    await disk.makeDirectory(to);
    for (const { name, isDirectory } of [...Deno.readDirSync(from)]) {
      const path = `${to}/${name}`;
      if (isDirectory) await copy(new URL(`${name}/`, from), path);
      else disk.writeDurable(path, Deno.readFileSync(new URL(name, from)));
    }
  };
  await copy(root, PATH);
  return disk;
}
