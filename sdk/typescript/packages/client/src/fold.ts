/**
 * The state folded from a run's events: its texts as they are written, its open interrupts, its status, its errors.
 *
 * @module
 */
export { failureLine, failureOf, readFailure, type Failure } from "./failure.js";
export { Interrupts, type Interrupt } from "./interrupts.js";
export { familyOf, fields, isTerminal, messageText, statusAfter, textOf } from "./read.js";
export { charCount, firstChars, Texts, textLimits, type SpanText } from "./texts.js";
