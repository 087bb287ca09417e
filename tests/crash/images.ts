/**
 * Power cuts of a real broker: `deno task crash:images --images 5000`.
 *
 * Exit codes: 0 every promise was kept, 1 one was broken (its folder is kept), 2 wrong arguments.
 */
import { parseArgs } from "node:util";
import { SeededRandom } from "@sluice/shared/testing";
import { judgeImage, recordRecovery, writeImage } from "./image_judge.ts";
import { type ImageRun, recordRun } from "./image_run.ts";
import { chooseCuts, type Image, imageAt, movedImage, type Recording } from "./power_images.ts";

const HELP = `Usage: deno task crash:images [--images N] [--seed S] [--messages M]

Records what a real broker asks of its disk, and opens a broker on what power cuts could have left.

  --images N     how many power cuts; 1000 by default
  --seed S       repeats the choices; chosen and printed by default
  --messages M   confirmed messages of a recording; 3000 by default
  --help         print this`;

/** Images of one recording; more make another recording. */
const IMAGES_PER_RUN = 500;
/** So many images are cut once more in the recovery. */
const SECOND_CUT_EVERY = 4;
const FAST_FOLDER = "/dev/shm";

/** How a run over images came out. */
export interface ImagesReport {
  readonly images: number;
  readonly events: number;
  readonly messages: number;
  readonly checkpoints: number;
  readonly removedFiles: number;
  readonly compactedFiles: number;
  readonly largeMessages: number;
}

/** An image that breaks a promise. */
export class ImageFailure extends Error {
  override name = "ImageFailure";
  constructor(readonly path: string, readonly cut: number, override readonly cause: unknown) {
    super(`Power cut after event ${cut}: ${cause instanceof Error ? cause.message : cause}`);
  }
}

/**
 * Records a run and judges `images` of it; throws {@linkcode ImageFailure}. `alter` changes what was
 * recorded, to plant a fault.
 */
export async function runImages(
  path: string,
  options: { readonly images: number; readonly seed: number; readonly messages: number },
  alter: (recording: Recording) => Recording = (recording) => recording,
): Promise<ImagesReport> {
  const random = new SeededRandom(options.seed);
  const data = `${path}/data`;
  const run = await recordRun(data, random.fork(), options.messages);
  const recording = alter(run.disk);
  const cuts = chooseCuts(recording.events, options.images, options.seed);
  for (const [number, cut] of cuts.entries()) {
    const folder = `${path}/image${number}`;
    let image = movedImage(imageAt(recording, cut, random.fork()), data, folder);
    if (number % SECOND_CUT_EVERY === 0) image = await cutRecovery(image, folder, random.fork());
    await writeImage(image);
    try {
      await judgeImage(run, cut, folder);
    } catch (error) {
      throw new ImageFailure(folder, cut, error);
    }
    await removeImage(folder);
  }
  return report(run, cuts.length);
}

/** What a second power cut leaves, while a broker takes up the folder of the first one or stops again. */
async function cutRecovery(image: Image, folder: string, random: SeededRandom): Promise<Image> {
  await writeImage(image);
  const recording = await recordRecovery(image.keys(), folder);
  await removeImage(folder);
  const cut = random.below(recording.events.length + 1);
  return imageAt(recording, cut, random, undefined, image);
}

async function removeImage(folder: string): Promise<void> {
  await Deno.remove(folder, { recursive: true }).catch((error) => {
    // Cut before the folder had a name.
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  });
}

function report({ disk, messages }: ImageRun, images: number): ImagesReport {
  const heard = disk.events.filter(({ kind }) => kind === "heard").map(({ change }) => change);
  return {
    images,
    events: disk.events.length,
    messages: messages.size,
    checkpoints: heard.filter((one) => one.type === "rename" && one.to.endsWith(".ckp")).length,
    largeMessages: [...messages.values()].filter(({ topic }) => topic === "large").length,
    compactedFiles: heard
      .filter((one) => one.type === "rename" && one.path.endsWith(".log.tmp")).length,
    removedFiles: heard.filter((one) => one.type === "remove" && one.path.endsWith(".log")).length,
  };
}

/** A folder in memory where there is one: what was synced is decided by the recording, not by it. */
export async function makeImagesFolder(): Promise<string> {
  const hasMemory = await Deno.stat(FAST_FOLDER).then(
    ({ isDirectory }) => isDirectory,
    () => false,
  );
  return await Deno.makeTempDir({
    prefix: "sluice_images_",
    ...(hasMemory ? { dir: FAST_FOLDER } : {}),
  });
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      images: { type: "string", default: "1000" },
      seed: { type: "string", default: String(Math.floor(Math.random() * 2 ** 32)) },
      messages: { type: "string", default: "3000" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return 0;
  }
  const [images, seed, messages] = [values.images, values.seed, values.messages].map(Number);
  if (![images, seed, messages].every((value) => Number.isInteger(value) && value! >= 0)) {
    console.error(`Cannot run: --images, --seed and --messages are natural numbers\n\n${HELP}`);
    return 2;
  }
  console.log(`seed: ${seed}`);
  const path = await makeImagesFolder();
  for (let done = 0; done < images!;) {
    const count = Math.min(IMAGES_PER_RUN, images! - done);
    const folder = `${path}/${done}`;
    try {
      const one = await runImages(folder, {
        images: count,
        seed: seed! + done,
        messages: messages!,
      });
      console.log(`${done + count} of ${images} images: ${JSON.stringify(one)}`);
    } catch (error) {
      if (!(error instanceof ImageFailure)) throw error;
      console.error(error.message);
      console.error(`the folder, as the broker that was opened on it left it: ${error.path}`);
      console.error(`  deno task ctl data verify ${error.path}`);
      return 1;
    }
    await Deno.remove(folder, { recursive: true });
    done += count;
  }
  await Deno.remove(path, { recursive: true });
  console.log(`images: ${images}, broken promises: 0`);
  return 0;
}

if (import.meta.main) Deno.exit(await main());
