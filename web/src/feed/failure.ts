/** What went wrong, for people: never the name of what failed. */

import { failureLine, readFailure, type Failure } from "@runreel/client/fold";

/** `type: message`, or the one of them that there is; empty when it does not say. */
export function errorLine(error: unknown): string {
  const failure = readFailure(error);
  return failure === null ? "" : failureLine(failure);
}

/** All of it, as a language prints it: the error, where it happened, and what led to it. */
export function failureText(failure: Failure): string {
  const { stack, causes } = failure;
  const told = [failureLine(failure), stack].filter((part) => part !== "").join("\n");
  return [told, ...causes.map((cause) => `Caused by ${failureText(cause)}`)].join("\n\n");
}

/** Frames of a stack that stand one below the other, all of them the program's own or none. */
export interface Frames {
  isOwn: boolean;
  lines: string[];
  frames: number;
}

/** A line that begins a frame, in Python and in JavaScript. */
const frame = /^\s*(?:File "|at\s)/;
const foreign =
  /[\\/](?:site-packages|dist-packages|node_modules)[\\/]|[\\/]lib[\\/]python\d|\(?node:|<frozen |<anonymous>\)?$/;

/** A stack of so many characters: the frames nearest to the failure, which Python tells last. */
export function cutStack(stack: string, most: number): string {
  if (stack.length <= most) return stack;
  return /^\s*File "/m.test(stack) ? `…\n${stack.slice(-most)}` : `${stack.slice(0, most)}\n…`;
}

/** A stack as its own frames and those of libraries, in its order. Without any own frame, all are told as own. */
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
