/** JSON Schema (2020-12, as in OpenAPI 3.1) in few words: what the answers of the HTTP API look like. */

/** A schema, as JSON. */
export type Schema = Readonly<Record<string, unknown>>;

export const INTEGER: Schema = { type: "integer" };
export const NUMBER: Schema = { type: "number" };
export const TEXT: Schema = { type: "string" };
export const BOOLEAN: Schema = { type: "boolean" };
/** Whatever JSON can hold. */
export const ANY: Schema = {};

/** An object whose fields are all there but those in `optional`. More fields may come with time. */
export function object(
  properties: Readonly<Record<string, Schema>>,
  optional: readonly string[] = [],
): Schema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: "object", properties, ...(required.length === 0 ? {} : { required }) };
}

/** A list of values that are all alike. */
export function array(items: Schema): Schema {
  return { type: "array", items };
}

/** An object of any names whose values are all alike. */
export function map(values: Schema): Schema {
  return { type: "object", additionalProperties: values };
}

/** One of a few values. */
export function choice(values: readonly (string | number)[]): Schema {
  return { enum: values };
}

/** The same, or null. */
export function nullable(schema: Schema): Schema {
  return { anyOf: [schema, { type: "null" }] };
}

/** With a sentence about it. */
export function told(description: string, schema: Schema): Schema {
  return { description, ...schema };
}

/** A schema of `components`. */
export function reference(name: string): Schema {
  return { $ref: `#/components/schemas/${name}` };
}
