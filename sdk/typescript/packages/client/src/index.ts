/** The shapes of the wire, as the server's OpenAPI document has them. */
export type { components } from "./schema.js";
