// A CopilotKit runtime with a scripted agent: imported by tests, or in a process of its own, `node runtime.mjs <runreel>`,
// where a line on standard input lets the agent go on.
import { AbstractAgent, EventType } from "@ag-ui/client";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { Client } from "@runreel/client";
import { RunreelRunner } from "@runreel/copilotkit";
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Observable } from "rxjs";

/** What waits until somebody lets it go on. */
export class Gate {
    #waiting = [];
    open = () => {
        for (const go of this.#waiting.splice(0)) go();
    };
    wait = () => new Promise((go) => this.#waiting.push(go));
}

/** Says what the last message asks for. */
class Scripted extends AbstractAgent {
    constructor(gate) {
        super({ agentId: "scripted" });
        this.gate = gate;
    }

    clone() {
        return new Scripted(this.gate);
    }

    run(input) {
        return new Observable((subscriber) => {
            this.subscriber = subscriber;
            const say = (type, members = {}) => subscriber.next({ type: EventType[type], ...members });
            const { threadId, runId, messages } = input;
            say("RUN_STARTED", { threadId, runId });
            const last = messages.at(-1);
            const script = last.role === "tool" ? "answered" : last.content;
            scripts[script]({
                say,
                id: (name) => `${runId}.${name}`,
                gate: this.gate,
                content: last.content,
            }).then(
                (finished = {}) => {
                    say("RUN_FINISHED", { threadId, runId, ...finished });
                    subscriber.complete();
                },
                (error) => subscriber.error(error),
            );
        });
    }

    abortRun() {
        this.subscriber?.error(new Error("aborted"));
    }
}

const text = (say, messageId, ...deltas) => {
    say("TEXT_MESSAGE_START", { messageId, role: "assistant" });
    for (const delta of deltas) say("TEXT_MESSAGE_CONTENT", { messageId, delta });
    say("TEXT_MESSAGE_END", { messageId });
};

const scripts = {
    async talk({ say, id, gate }) {
        say("TEXT_MESSAGE_START", { messageId: id("m"), role: "assistant" });
        say("TEXT_MESSAGE_CONTENT", { messageId: id("m"), delta: "Hello, " });
        await gate.wait();
        say("TEXT_MESSAGE_CONTENT", { messageId: id("m"), delta: "wörld 🌍" });
        say("TEXT_MESSAGE_END", { messageId: id("m") });
    },
    async work({ say, id }) {
        say("STEP_STARTED", { stepName: "plan" });
        say("REASONING_START", { messageId: id("r") });
        say("REASONING_MESSAGE_START", { messageId: id("r"), role: "reasoning" });
        say("REASONING_MESSAGE_CONTENT", { messageId: id("r"), delta: "A list helps." });
        say("REASONING_MESSAGE_END", { messageId: id("r") });
        say("REASONING_END", { messageId: id("r") });
        say("STATE_SNAPSHOT", { snapshot: { todo: ["a"], note: "n".repeat(100_000) } });
        text(say, id("m1"), "Searching.");
        const toolCallId = id("t");
        say("TOOL_CALL_START", { toolCallId, toolCallName: "search", parentMessageId: id("m1") });
        say("TOOL_CALL_ARGS", { toolCallId, delta: '{"q":' });
        say("TOOL_CALL_ARGS", { toolCallId, delta: '"runreel"}' });
        say("TOOL_CALL_END", { toolCallId });
        say("TOOL_CALL_RESULT", { messageId: id("t.m"), toolCallId, content: '{"hits":3}', role: "tool" });
        say("STATE_DELTA", { delta: [{ op: "add", path: "/todo/-", value: "b" }] });
        say("CUSTOM", { name: "progress", value: { percent: 100 } });
        say("STEP_FINISHED", { stepName: "plan" });
        text(say, id("m2"), "Three ", "hits.");
        return { result: { hits: 3 } };
    },
    async ask({ say, id }) {
        const toolCallId = id("c");
        say("TOOL_CALL_START", { toolCallId, toolCallName: "confirm" });
        say("TOOL_CALL_ARGS", { toolCallId, delta: "{}" });
        say("TOOL_CALL_END", { toolCallId });
    },
    async answered({ say, id, content }) {
        text(say, id("m"), `You said ${content}.`);
    },
    async break({ say, id, gate }) {
        say("STEP_STARTED", { stepName: "doomed" });
        say("TEXT_MESSAGE_START", { messageId: id("m"), role: "assistant" });
        say("TEXT_MESSAGE_CONTENT", { messageId: id("m"), delta: "So fa" });
        await gate.wait();
        throw new Error("the model is gone");
    },
};

/** Serves the runtime; `runreel` is the log's address. */
export async function serve(runreel, lease_ms) {
    const gate = new Gate();
    const runner = new RunreelRunner({ client: new Client({ url: runreel }), lease_ms });
    const runtime = new CopilotRuntime({ agents: { scripted: new Scripted(gate) }, runner });
    const server = createServer(createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" }));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const url = `http://127.0.0.1:${server.address().port}/api/copilotkit`;
    return { url, runner, gate, close: () => server.close() };
}

if (process.argv[1] === import.meta.filename) {
    const { url, gate } = await serve(process.argv[2], Number(process.argv[3]));
    console.log(url);
    createInterface({ input: process.stdin }).on("line", gate.open);
}
