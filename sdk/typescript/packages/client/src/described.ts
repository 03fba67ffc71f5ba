/** Of a message, and of all the stacks in one error. */
const chars_max = 16_384;
/** An error, its causes, and theirs. */
const errors_max = 16;

type Told = Record<string, unknown>;

/**
 * What failed, as `run.failed`, `tool.failed` … tell it: an `Error` with its stack and its causes, an object as it is, and
 * anything else that can be thrown as the message.
 */
export function described(error: unknown): unknown {
  const told: Told[] = [];
  try {
    const whole = tell(error, told, new Set());
    const share = Math.floor(chars_max / told.length);
    for (const each of told) if ("stack" in each) each["stack"] = cut(each["stack"] as string, share);
    return whole;
  } catch {
    // A getter or a toString of the host's.
    return { type: "Error", message: "…" };
  }
}

function tell(error: unknown, told: Told[], seen: Set<unknown>): unknown {
  if (!(error instanceof Error)) {
    const isObject = typeof error === "object" && error !== null;
    return isObject ? error : { type: "Error", message: clipped(String(error)) };
  }
  const { name, message, stack, cause, code, errors } = error as Error & Told;
  const made = error.constructor.name;
  // A class that has not set its name; that of a minified one says nothing.
  const type = name === "Error" && made.length > 2 ? made : String(name);
  const one: Told = { type, message: clipped(String(message)) };
  told.push(one);
  seen.add(error);
  if (typeof code === "string") one["code"] = code;
  if (typeof stack === "string") one["stack"] = framesOf(stack);
  const isNext = (other: unknown) => other !== undefined && told.length < errors_max && !seen.has(other);
  if (isNext(cause)) one["cause"] = tell(cause, told, seen);
  if (Array.isArray(errors)) {
    const members: unknown[] = [];
    for (const member of errors.slice(0, errors_max))
      if (isNext(member)) members.push(tell(member, told, seen));
    one["errors"] = members;
  }
  return one;
}

/** V8 puts the type and the message before the frames. */
const framesOf = (stack: string) => stack.slice(Math.max(0, stack.search(/^ +at /m)));

const clipped = (text: string) => (text.length > chars_max ? `${text.slice(0, chars_max)}…` : text);

/** The first lines: the frames nearest to the failure. */
function cut(stack: string, chars: number): string {
  if (stack.length <= chars) return stack;
  const kept = stack.slice(0, stack.lastIndexOf("\n", chars) + 1);
  return `${kept}    … ${stack.length - kept.length} characters left out`;
}
