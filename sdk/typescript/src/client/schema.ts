/** JSON Schema, given as such or by Zod. */

/** A plain JSON Schema. */
export type JsonSchema = Record<string, unknown> | boolean;

/** What the SDK uses of a Zod schema, so that it needs no Zod itself. */
export interface ZodLike<T = unknown> {
  safeParse(
    value: unknown,
  ): { success: true; data: T } | { success: false; error: { message: string; issues?: unknown } };
  /** Zod 4 has it as a method, Zod Mini as a function of the module: then give what that makes, and parse yourself. */
  toJSONSchema?: (options?: { io?: "input" | "output"; unrepresentable?: "any" }) => unknown;
}

/** A plain JSON Schema, or a Zod one, which checks and converts values here as well. */
export type Schema<T = unknown> = JsonSchema | ZodLike<T>;

/** Whether a schema can parse values itself. */
export function isZod<T>(schema: Schema<T> | undefined): schema is ZodLike<T> {
  return typeof schema === "object" && typeof (schema as Partial<ZodLike<T>>).safeParse === "function";
}

/** The JSON Schema of a schema. `io`: what goes into it, or what comes out of it. */
export function schemaOf(schema: Schema, io: "input" | "output" = "output"): JsonSchema {
  if (!isZod(schema)) return schema;
  if (schema.toJSONSchema === undefined) {
    throw new TypeError("a schema without toJSONSchema(), which Zod has from version 4 on");
  }
  // What JSON cannot say, a bigint or a date, is anything to the hub; the schema itself still checks it here.
  const made = schema.toJSONSchema({ io, unrepresentable: "any" }) as Record<string, unknown>;
  // Other libraries hang themselves onto the object; the wire wants the schema alone.
  return JSON.parse(JSON.stringify(made)) as JsonSchema;
}
