export { Client, type ClientOptions, type Following, type NewRun } from "./client.js";
export { described } from "./described.js";
export { Message, RunEmitter, Scope, Span, type Placed } from "./emitter.js";
export { RunreelError } from "./errors.js";
export { encoded } from "./payload.js";
export * from "./events.js";
export { FeedOrder, RunOrder, type Order, type Taken } from "./order.js";
export { Runs, Threads, type Answer, type ReadToken, type RunFilter } from "./runs.js";
export type { components } from "./schema.js";
export { Status, type Connection, type State } from "./status.js";
export { EventStream, type StreamOptions } from "./stream.js";
export {
  Transport,
  withQuery,
  type CallOptions,
  type Query,
  type TokenSource,
  type TransportOptions,
} from "./transport.js";
export type * from "./types.js";
