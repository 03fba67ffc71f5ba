export { Conversation, type Message, type ToolCall } from "./conversation.js";
export {
  RunreelProvider,
  useClient,
  useInterrupts,
  useMessages,
  useRun,
  type FollowedRun,
  type OpenInterrupts,
} from "./hooks.js";
export type { RunState } from "./store.js";
