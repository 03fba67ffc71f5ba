// The official clients of chat protocols, fed with what the server writes, and what they complain about. Each line of input
// is {face, bodies}: the answers to the requests of one conversation; each line of output is {complaints, messages}: errors
// and warnings, and what the client has in the end.
import { createInterface } from "node:readline";

import { HttpAgent } from "@ag-ui/client";
import { DefaultChatTransport, readUIMessageStream } from "ai";
import OpenAI from "openai";

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
};

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
    const { face, bodies } = JSON.parse(line);
    complaints = [];
    const messages = await faces[face](bodies).catch((error) => void complaints.push(String(error.stack)));
    complaints = complaints.map((words) => words.slice(0, 1_000));
    console.log(JSON.stringify({ complaints, messages }));
}
