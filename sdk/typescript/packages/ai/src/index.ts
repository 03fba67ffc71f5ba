export { RunreelChatTransport, type RunreelChatOptions } from "./transport.js";
