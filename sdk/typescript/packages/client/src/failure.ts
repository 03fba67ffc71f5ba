import { fields, textOf } from "./read.js";

/** An error for display. Members that the producer did not send are empty. */
export interface Failure {
  /** `KeyError`, `httpx.HTTPStatusError`. */
  type: string;
  message: string;
  code: string;
  /** Where it happened: lines, as its language prints them. */
  stack: string;
  /** Its `cause`, then the `errors` that it is a group of. */
  causes: Failure[];
}

/** Maximum number of errors read from one tree of causes and group members. */
const errors_max = 16;

/**
 * Reads an error in any form that the contract allows, such as a run's `error`: a text, an object with `type`, `message`
 * and so on, or any other value, which becomes the message. Null when it is empty.
 */
export function readFailure(error: unknown): Failure | null {
  return read(error, { errors: errors_max });
}

/** The error of a `….failed`: the payload's member `error`, or else the payload itself. */
export function failureOf(payload: unknown): Failure | null {
  const left = { errors: errors_max };
  const error = fields(payload)["error"] ?? null;
  return error === null ? members(payload, left) : read(error, left);
}

/** One line: `type: message`, or the one of them that is not empty, or else the code. */
export function failureLine({ type, message, code }: Failure): string {
  return [type, message].filter((part) => part !== "").join(": ") || code;
}

function read(error: unknown, left: { errors: number }): Failure | null {
  if (error === null || error === undefined || left.errors === 0) return null;
  left.errors -= 1;
  const failure = members(error, left);
  if (failure !== null) return failure;
  // A whole payload, or an answer that contains an error.
  if ("error" in fields(error)) return read(fields(error)["error"], left);
  const message = (textOf(error) ?? JSON.stringify(error)).trim();
  return /^(\{\}|\[\]|)$/.test(message) ? null : { type: "", message, code: "", stack: "", causes: [] };
}

/** The error in an object's members; null if none of them describes one. */
function members(error: unknown, left: { errors: number }): Failure | null {
  const from = fields(error);
  const text = (name: string) => (textOf(from[name]) ?? "").trim();
  // A large payload is in an artifact; the event keeps the beginning of it.
  const preview = "$artifact" in from ? text("preview") : "";
  const message = preview || text("message") || text("detail") || text("text") || text("reason");
  const stack = (textOf(from["stack"]) ?? "").trimEnd();
  const failure: Failure = { type: text("type"), message, code: text("code"), stack, causes: [] };
  if (failureLine(failure) === "") return null;
  const group = from["errors"];
  for (const cause of [from["cause"], ...(Array.isArray(group) ? (group as unknown[]) : [])]) {
    if (left.errors === 0) break;
    const inner = read(cause, left);
    if (inner !== null) failure.causes.push(inner);
  }
  return failure;
}
