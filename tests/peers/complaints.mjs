// The official clients of chat protocols, and our own of our own stream, fed with what the server writes, and what they complain about. Each line of input
// is {face, bodies}: the answers to the requests of one conversation; each line of output is {complaints, messages}: errors
// and warnings, and what the client has in the end.
import { createInterface } from "node:readline";

import { HttpAgent } from "@ag-ui/client";
import { DefaultChatTransport, readUIMessageStream } from "ai";
import OpenAI from "openai";

import { Client, isDelta, isEvent } from "../../sdk/typescript/packages/client/dist/index.js";
import { Texts } from "../../sdk/typescript/packages/client/dist/fold.js";

let complaints = [];
for (const level of ["warn", "error"]) {
    console[level] = (...words) => {
        const said = words.map(String).join(" ");
        // Of a call below a text that its client has as another's, because it was cut off: what the client then does is right.
        if (!said.endsWith("falling back to toolCallId")) complaints.push(said);
    };
}

const answer = (body, headers) => async () => new Response(body, { headers });

const faces = {
    async agui(bodies) {
        const agent = new HttpAgent({ url: "http://x", threadId: "t" });
        for (const [n, body] of bodies.entries()) {
            agent.fetch = answer(body, { "content-type": "text/event-stream" });
            // The answers are in the log already.
            agent.pendingInterrupts = [];
            let failed = false;
            const subscriber = { onRunErrorEvent: () => void (failed = true) };
            await agent.runAgent({ runId: `r${n}` }, subscriber).catch((error) => {
                // A run that fails is no complaint.
                if (!failed) complaints.push(String(error));
            });
        }
        return agent.messages;
    },

    async ai_sdk(bodies) {
        let last;
        const onError = (error) => {
            // What the stream itself calls an error is a plain one.
            if (error.name !== "Error") complaints.push(String(error));
        };
        for (const body of bodies) {
            const transport = new DefaultChatTransport({ api: "http://x", fetch: answer(body, {}) });
            const request = { chatId: "c", messages: [], trigger: "submit-message" };
            const stream = await transport.sendMessages(request);
            for await (const message of readUIMessageStream({ message: last, stream, onError })) last = message;
        }
        for (const { type, state } of last?.parts ?? []) {
            if (state === "streaming") complaints.push(`a part of the type ${type} was not closed`);
        }
        return last ? [last] : [];
    },

    async responses(bodies) {
        const connections = bodies.map((body) => {
            const fetch = answer(body, { "content-type": "text/event-stream" });
            return new OpenAI({ apiKey: "x", baseURL: "http://x", maxRetries: 0, fetch }).responses;
        });
        let [before, last] = [-1, null];
        for (const [n, connection] of connections.entries()) {
            // One that puts a response together reads all of it again; what follows is read as it comes.
            const events =
                bodies.length === 1
                    ? connection.stream({ model: "m", input: "x" })
                    : await connection.retrieve("resp", { stream: true, ...(n > 0 && { starting_after: before }) });
            for await (const { sequence_number, response } of events) {
                if (sequence_number <= before) complaints.push(`${sequence_number} comes after ${before}`);
                before = sequence_number;
                last = response ?? last;
            }
        }
        return [last];
    },

    async own(bodies) {
        const rest = [...bodies];
        const fetch = async () => {
            if (rest.length === 0) complaints.push("it asks once more");
            const body = rest.shift();
            if (body === undefined) return new Response(null, { status: 204 });
            return new Response(body, { headers: { "content-type": "text/event-stream" } });
        };
        const stream = new Client({ url: "http://x", token: "x", fetch }).stream("r");
        stream.status.subscribe(() => queueMicrotask(() => stream.retryNow()));
        const [texts, seqs] = [new Texts(), []];
        for await (const event of stream) {
            if (isEvent(event)) {
                texts.event(event);
                seqs.push(event.seq);
            } else if (isDelta(event)) texts.delta(event);
            else if (event.type === "message.snapshot") texts.snapshot(event);
            else if (event.type === "stream.gap") complaints.push(`a gap before ${event.first_seq}`);
            for (const text of texts.open.values()) if (text.hole) complaints.push(`a hole in ${text.span_id}`);
        }
        return { seqs, texts: texts.done.map(({ text }) => text) };
    },
};

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
    const { face, bodies } = JSON.parse(line);
    complaints = [];
    const messages = await faces[face](bodies).catch((error) => void complaints.push(String(error.stack)));
    complaints = complaints.map((words) => words.slice(0, 1_000));
    console.log(JSON.stringify({ complaints, messages }));
}
