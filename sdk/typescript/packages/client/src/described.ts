/** Of a message, and of all stacks of one error together. */
const chars_max = 16_384;
/** Maximum number of errors in one tree of causes and group members. */
const errors_max = 16;

type Described = Record<string, unknown>;

/**
 * An error as `run.failed`, `tool.failed` … carry it: an `Error` with its stack and its causes, an object unchanged,
 * and any other thrown value as the message.
 */
export function described(error: unknown): unknown {
  const nodes: Described[] = [];
  try {
    const whole = describe(error, nodes, new Set());
    const share = Math.floor(chars_max / nodes.length);
    for (const each of nodes) if ("stack" in each) each["stack"] = cut(each["stack"] as string, share);
    return whole;
  } catch {
    // A getter or a toString of the host threw.
    return { type: "Error", message: "…" };
  }
}

function describe(error: unknown, nodes: Described[], seen: Set<unknown>): unknown {
  if (!(error instanceof Error)) {
    const isObject = typeof error === "object" && error !== null;
    return isObject ? error : { type: "Error", message: clipped(String(error)) };
  }
  const { name, message, stack, cause, code, errors } = error as Error & Described;
  const made = error.constructor.name;
  // A class that has not set `name` has its constructor's, unless that looks minified.
  const type = name === "Error" && made.length > 2 ? made : String(name);
  const one: Described = { type, message: clipped(String(message)) };
  nodes.push(one);
  seen.add(error);
  if (typeof code === "string") one["code"] = code;
  if (typeof stack === "string") one["stack"] = framesOf(stack);
  const isNext = (other: unknown) => other !== undefined && nodes.length < errors_max && !seen.has(other);
  if (isNext(cause)) one["cause"] = describe(cause, nodes, seen);
  if (Array.isArray(errors)) {
    const members: unknown[] = [];
    for (const member of errors.slice(0, errors_max))
      if (isNext(member)) members.push(describe(member, nodes, seen));
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
