import { described, type RunEmitter } from "@runreel/client";
import { asLogged, fitted, noted, textOf, type Said, type Spoken } from "./words.js";

/** The server accepts 64 KiB in a delta. */
const piece = /[^]{1,8000}/gu;

interface Text {
  id: string;
  span_id: string;
  role: string;
  text: string;
}

interface Call {
  id: string;
  name: string;
  parent: string;
  args: string;
}

/** Writes the events of one run into the log. An AG-UI id becomes a span id; a repeated one gets a number. */
export class Recorder {
  readonly #emitter: RunEmitter;
  readonly #clientTools: Set<string>;
  readonly #texts = new Map<string, Text>();
  readonly #calls = new Map<string, Call>();
  /** The span and the name of each call that was made. */
  readonly #made = new Map<string, { span_id: string; name: string }>();
  readonly #steps: { name: string; span_id: string }[] = [];
  readonly #used = new Set<string>();
  #stepCount = 0;
  #lastText = "";
  /** Calls that the client has to answer, by id. */
  readonly #open = new Map<string, { id: string; name: string; args: unknown }>();

  constructor(emitter: RunEmitter, clientTools: Set<string>) {
    this.#emitter = emitter;
    this.#clientTools = clientTools;
  }

  /** Records the client's messages since the last answer: the user's, and the results of its own tools. */
  told(messages: readonly Spoken[]): void {
    const last = messages.findLastIndex(({ role }) => role === "assistant");
    for (const { id, role, content, toolCallId } of messages.slice(last + 1)) {
      if ((role !== "user" && role !== "tool") || content === undefined) continue;
      const parts = typeof content === "string" ? [{ type: "text", text: content }] : content;
      const call = role === "tool" ? { tool_call_id: fitted(textOf(toolCallId)) } : {};
      this.#named("message.completed", textOf(id), { role, content: parts, ...call });
    }
  }

  take(event: Said): void {
    const { type } = event;
    const message = textOf(event["messageId"]);
    const call = textOf(event["toolCallId"]);
    const delta = textOf(event["delta"]);
    if (type === "TEXT_MESSAGE_START") this.#begin(message, textOf(event["role"]) || "assistant");
    else if (type === "REASONING_MESSAGE_START") this.#begin(message, "reasoning");
    else if (/^(TEXT|REASONING)_MESSAGE_CONTENT$/.test(type)) this.#more(message, delta);
    else if (/^(TEXT|REASONING)_MESSAGE_END$/.test(type)) this.#end(message);
    else if (type === "TOOL_CALL_START") {
      const parent = textOf(event["parentMessageId"]);
      this.#calls.set(call, { id: call, name: textOf(event["toolCallName"]), parent, args: "" });
    } else if (type === "TOOL_CALL_ARGS") {
      const open = this.#calls.get(call);
      if (open) open.args += delta;
    } else if (type === "TOOL_CALL_END") this.#called(call);
    else if (type === "TOOL_CALL_RESULT") this.#returned(call, event);
    else if (type === "STEP_STARTED") this.#stepped(textOf(event["stepName"]));
    else if (type === "STEP_FINISHED") this.#stepEnded(textOf(event["stepName"]));
    else if (noted.has(type)) this.#emitter.emit(`agui.${type.toLowerCase()}`, asLogged(event));
  }

  /** Ends the run, once: as its last event says (with the stack of a thrown error), or as stopped by a person. */
  async ended(event: Said, isStopped: boolean, thrown: unknown): Promise<void> {
    for (const id of [...this.#texts.keys()]) this.#end(id);
    for (const id of [...this.#calls.keys()]) this.#called(id);
    for (const { name } of [...this.#steps]) this.#stepEnded(name);
    if (isStopped) await this.#emitter.cancel("stopped by the user");
    else if (event.type === "RUN_ERROR") {
      const { message, code } = event;
      const error = thrown === undefined ? {} : (described(thrown) as object);
      this.#emitter.emit("run.failed", { error: { ...error, message, ...(code !== undefined && { code }) } });
    } else {
      const { result, outcome } = event;
      const calls = this.#open.size > 0 ? { tool_calls: [...this.#open.values()] } : {};
      const output = result ?? { response: this.#lastText, ...calls };
      this.#emitter.emit("run.completed", { output, result, outcome });
    }
    await this.#emitter.flush();
  }

  #begin(id: string, role: string): void {
    this.#end(id);
    this.#texts.set(id, { id, span_id: this.#span(id), role, text: "" });
  }

  #more(id: string, delta: string): void {
    const open = this.#texts.get(id);
    if (!open) return;
    open.text += delta;
    const type = open.role === "reasoning" ? "reasoning.delta" : "message.delta";
    for (const text of delta.match(piece) ?? [])
      this.#emitter.emit(type, { text }, { span_id: open.span_id });
  }

  #end(id: string): void {
    const open = this.#texts.get(id);
    if (!open) return;
    this.#texts.delete(id);
    const { span_id, role, text } = open;
    const named = span_id === id ? {} : { message_id: id };
    if (role === "reasoning")
      return this.#emitter.emit("reasoning.completed", { text, ...named }, { span_id });
    const content = [{ type: "text", text }];
    this.#emitter.emit("message.completed", { role, content, ...named }, { span_id });
    if (role === "assistant") this.#lastText = text;
  }

  #called(id: string): void {
    const call = this.#calls.get(id);
    if (!call) return;
    this.#calls.delete(id);
    const { name, parent } = call;
    const [span_id, args] = [this.#span(id), read(call.args)];
    const isClients = this.#clientTools.has(name);
    this.#made.set(id, { span_id, name });
    if (isClients) this.#open.set(id, { id, name, args });
    const payload = { tool_call_id: id, name, args, ...(isClients && { client: true }) };
    const within = parent === "" ? {} : { parent_span_id: fitted(parent) };
    this.#emitter.emit("tool.started", payload, { span_id, ...within });
  }

  #returned(id: string, { messageId: message_id, content: result }: Said): void {
    this.#called(id);
    this.#open.delete(id);
    // A call that is not known was made in an earlier run.
    const { span_id, name } = this.#made.get(id) ?? { span_id: fitted(id), name: "unnamed" };
    this.#emitter.emit("tool.completed", { tool_call_id: id, name, result, message_id }, { span_id });
  }

  #stepped(name: string): void {
    const span_id = `step${++this.#stepCount}`;
    this.#steps.push({ name, span_id });
    this.#emitter.emit("step.started", { name }, { span_id });
  }

  #stepEnded(name: string): void {
    const at = this.#steps.findLastIndex((step) => step.name === name);
    const [step] = at < 0 ? [] : this.#steps.splice(at, 1);
    if (step) this.#emitter.emit("step.completed", { name }, { span_id: step.span_id });
  }

  #named(type: string, id: string, payload: object): void {
    const span_id = this.#span(id);
    this.#emitter.emit(type, { ...payload, ...(span_id !== id && { message_id: id }) }, { span_id });
  }

  #span(id: string): string {
    const span = fitted(id);
    let free = span;
    for (let n = 2; this.#used.has(free); n++) free = `${span}~${n}`;
    this.#used.add(free);
    return free;
  }
}

/** The decoded arguments of a call; their text, if they are not JSON. */
function read(args: string): unknown {
  try {
    return JSON.parse(args) as unknown;
  } catch {
    return args;
  }
}
