import { fields, textOf } from "./read.js";

/** What went wrong, as it is shown. What the producer did not say is empty. */
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

/** Errors that are read of one error: itself, its causes, and theirs. */
const errors_max = 16;

/**
 * Reads an error in any form that the contract allows, such as a run's `error`: a text, an object with `type`, `message`
 * and so on, or anything else, which is its own message. Null when it says nothing.
 */
export function readFailure(error: unknown): Failure | null {
  return read(error, { errors: errors_max });
}

/** The error of a `….failed`: the payload's member `error`, else what the payload itself says. */
export function failureOf(payload: unknown): Failure | null {
  const left = { errors: errors_max };
  const error = fields(payload)["error"] ?? null;
  return error === null ? members(payload, left) : read(error, left);
}

/** In one line: `type: message`, or the one of them that there is, else the code. */
export function failureLine({ type, message, code }: Failure): string {
  return [type, message].filter((told) => told !== "").join(": ") || code;
}

function read(error: unknown, left: { errors: number }): Failure | null {
  if (error === null || error === undefined || left.errors === 0) return null;
  left.errors -= 1;
  const failure = members(error, left);
  if (failure !== null) return failure;
  // A payload as a whole, or an answer that holds an error.
  if ("error" in fields(error)) return read(fields(error)["error"], left);
  const message = (textOf(error) ?? JSON.stringify(error)).trim();
  return /^(\{\}|\[\]|)$/.test(message) ? null : { type: "", message, code: "", stack: "", causes: [] };
}

/** What the members of an object say; null if none of them says what went wrong. */
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
    const told = read(cause, left);
    if (told !== null) failure.causes.push(told);
  }
  return failure;
}
