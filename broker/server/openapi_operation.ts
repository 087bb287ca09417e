/** How one route is described; each of the tables beside `openapi.ts` has some. */
import type { Schema } from "./openapi_schema.ts";

/** What is answered with one status. */
export interface Answer {
  readonly description: string;
  /** Of a JSON body; absent for none, or text. */
  readonly schema?: Schema;
  /** The type of a body that is not JSON. */
  readonly type?: string;
}

/** A parameter of the query. */
export interface Parameter {
  readonly description: string;
  readonly schema?: Schema;
  readonly required?: boolean;
}

/** One route, as clients see it. */
export interface Operation {
  /** One sentence. */
  readonly summary: string;
  /** Paragraphs that the sentence has no room for. */
  readonly description?: string;
  readonly query?: Readonly<Record<string, Parameter>>;
  /** What is to be sent; a schema for JSON, a content type for anything else. */
  readonly body?: Schema | string;
  readonly answers: Readonly<Record<number, Answer>>;
  /** The codes that a refusal may have in `message`, by status. */
  readonly refusals?: Readonly<Record<number, readonly string[]>>;
}

/** By method and path, as in the table of rules. */
export type Operations = Readonly<Record<string, Operation>>;
