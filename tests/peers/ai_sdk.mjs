// A browser's chat without the browser: the AI SDK's own chat and transport, ordered by a test, one line of JSON each.
//
// {"do":"open", api, id, token?, messages?, tools?, auto?}   a chat; `auto` sends answers by itself
// {"do":"send", text} {"do":"resume"} {"do":"regenerate"}    begins a request
// {"do":"cut", chunks}     the connection of the next response breaks after so many chunks
// {"do":"chunks", count}   waits until so many chunks have arrived since the chat was opened
// {"do":"rest"}            waits until nothing is under way
// {"do":"approve", id, approved, reason?} {"do":"output", tool, toolCallId, output}
// {"do":"read", text}      one whole answer by DefaultChatTransport and readUIMessageStream, without a chat
//
// Each is answered by one line: the chat's messages and state, and what came over the wire.
import { createInterface } from "node:readline";
import {
    AbstractChat,
    DefaultChatTransport,
    lastAssistantMessageIsCompleteWithApprovalResponses,
    lastAssistantMessageIsCompleteWithToolCalls,
    readUIMessageStream,
} from "ai";

/** The state of a chat, as a framework would keep it. */
class State {
    status = "ready";
    error = undefined;
    constructor(messages) {
        this.messages = messages;
    }
    pushMessage = (message) => (this.messages = [...this.messages, structuredClone(message)]);
    popMessage = () => (this.messages = this.messages.slice(0, -1));
    replaceMessage = (at, message) => (this.messages = this.messages.with(at, structuredClone(message)));
    snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {}

let chat, transport, wire, cutAfter, busy, wakers;

/** Counts the chunks of every response, and breaks the one that is to be cut. */
async function counting(url, init) {
    const response = await fetch(url, init);
    const header = response.headers.get("x-vercel-ai-ui-message-stream");
    wire.responses.push({ method: init.method, status: response.status, header });
    if (response.status !== 200) return response;
    let [seen, left, end] = ["", cutAfter ?? Infinity, "closed"];
    cutAfter = undefined;
    const decoder = new TextDecoder();
    const body = response.body.pipeThrough(
        new TransformStream({
            transform(bytes, controller) {
                seen += decoder.decode(bytes, { stream: true });
                const frames = seen.split("\n\n");
                seen = frames.pop();
                for (const frame of frames) {
                    if (left <= 0) return;
                    controller.enqueue(new TextEncoder().encode(`${frame}\n\n`));
                    const data = frame.startsWith("data: ") ? frame.slice(6) : undefined;
                    if (data === undefined) continue;
                    if (data === "[DONE]") end = "done";
                    else {
                        wire.chunks.push(JSON.parse(data));
                        left -= 1;
                    }
                    for (const wake of wakers.splice(0)) wake();
                    if (left <= 0) {
                        controller.error(new TypeError("network error"));
                        return;
                    }
                }
            },
            flush: () => void (wire.ends.push(end)),
        }),
    );
    return new Response(body, { status: response.status, headers: response.headers });
}

async function open({ api, id, token, messages = [], tools, auto }) {
    wire = { responses: [], chunks: [], ends: [] };
    [cutAfter, busy, wakers] = [undefined, [], []];
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    transport = new DefaultChatTransport({ api, headers, body: tools ? { tools } : {}, fetch: counting });
    const complete = (state) =>
        lastAssistantMessageIsCompleteWithToolCalls(state) ||
        lastAssistantMessageIsCompleteWithApprovalResponses(state);
    chat = new Chat({ id, transport, state: new State(messages), sendAutomaticallyWhen: auto ? complete : undefined });
}

async function chunks(count) {
    while (wire.chunks.length < count) await new Promise((wake) => wakers.push(wake));
}

async function rest() {
    do {
        await Promise.all(busy.splice(0));
        await new Promise(setImmediate);
    } while (busy.length > 0 || chat.status === "submitted" || chat.status === "streaming");
}

async function read({ text }) {
    const message = { id: "mine", role: "user", parts: [{ type: "text", text }] };
    const stream = await transport.sendMessages({
        chatId: chat.id,
        messages: [message],
        trigger: "submit-message",
        messageId: undefined,
        abortSignal: undefined,
    });
    let last;
    for await (const state of readUIMessageStream({ stream, terminateOnError: true })) last = state;
    chat.messages = [message, last];
}

const orders = {
    open,
    chunks: ({ count }) => chunks(count),
    rest,
    read,
    send: ({ text }) => void busy.push(chat.sendMessage({ text })),
    resume: () => void busy.push(chat.resumeStream()),
    regenerate: () => void busy.push(chat.regenerate()),
    cut: ({ chunks: after }) => void (cutAfter = after),
    approve: ({ id, approved, reason }) => void busy.push(chat.addToolApprovalResponse({ id, approved, reason })),
    output: ({ tool, toolCallId, output }) => void busy.push(chat.addToolOutput({ tool, toolCallId, output })),
};

for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    await orders[order.do](order);
    const { messages, status, error } = chat;
    console.log(JSON.stringify({ messages, status, error: error?.message, ...wire }));
}
