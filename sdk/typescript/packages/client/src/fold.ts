/**
 * What the events of a run add up to: its texts as they are written, its open interrupts, its status, what went wrong.
 *
 * @module
 */
export { failureLine, failureOf, readFailure, type Failure } from "./failure.js";
export { Interrupts, type Interrupt } from "./interrupts.js";
export { familyOf, fields, isTerminal, messageText, statusAfter, textOf } from "./read.js";
export { charCount, firstChars, Texts, textLimits, type SpanText } from "./texts.js";
