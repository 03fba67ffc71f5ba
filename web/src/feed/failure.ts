/** Errors for display, without the name of the failed step. */

import { failureLine, readFailure, type Failure } from "@runreel/client/fold";

/** `type: message`, or the one of them that is not empty; empty when there is no error. */
export function errorLine(error: unknown): string {
  const failure = readFailure(error);
  return failure === null ? "" : failureLine(failure);
}

/** The whole error, as a language prints it: type and message, stack, and causes. */
export function failureText(failure: Failure): string {
  const { stack, causes } = failure;
  const own = [failureLine(failure), stack].filter((part) => part !== "").join("\n");
  return [own, ...causes.map((cause) => `Caused by ${failureText(cause)}`)].join("\n\n");
}

/** Consecutive frames of a stack, either all of the program's own code or all of libraries. */
export interface Frames {
  isOwn: boolean;
  lines: string[];
  frames: number;
}

/** A line that begins a frame, in Python and in JavaScript. */
const frame = /^\s*(?:File "|at\s)/;
const foreign =
  /[\\/](?:site-packages|dist-packages|node_modules)[\\/]|[\\/]lib[\\/]python\d|\(?node:|<frozen |<anonymous>\)?$/;

/** A stack cut to `most` characters: the frames nearest to the failure, which Python prints last. */
export function cutStack(stack: string, most: number): string {
  if (stack.length <= most) return stack;
  return /^\s*File "/m.test(stack) ? `…\n${stack.slice(-most)}` : `${stack.slice(0, most)}\n…`;
}

/** A stack as groups of own and library frames, in its order. Without own frames, all count as own. */
export function framesOf(stack: string): Frames[] {
  const found: Frames[] = [];
  let isOwn = true;
  for (const line of stack.split("\n")) {
    const begins = frame.test(line);
    if (begins) isOwn = !foreign.test(line);
    const last = found.at(-1);
    if (last?.isOwn === isOwn) {
      last.lines.push(line);
      last.frames += begins ? 1 : 0;
    } else found.push({ isOwn, lines: [line], frames: begins ? 1 : 0 });
  }
  const hasOwn = found.some((each) => each.isOwn && each.frames > 0);
  return hasOwn ? found : [{ isOwn: true, lines: stack.split("\n"), frames: 0 }];
}
