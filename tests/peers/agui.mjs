// A chat client of AG-UI: `@ag-ui/client` as it is. Each line of input is an order, each line of output its result:
// the messages that the client has in the end, its state, the outcome, and every warning it wrote.
//
// With `cut`, the connection is cut after so many bytes, and again after so many of the next one; between the client and
// the network is a fetch that comes back with `Last-Event-ID`, as a page of ours would.
import { createInterface } from "node:readline";

import { HttpAgent } from "@ag-ui/client";

const warnings = [];
for (const level of ["warn", "error"]) {
    console[level] = (...words) => warnings.push(words.map(String).join(" "));
}

/** A fetch whose response survives cuts: it passes on whole events up to the last one that has an id. */
function resuming(base, runId, cuts) {
    const connections = [];
    const open = async (url, init) => {
        const abort = new AbortController();
        const response = await fetch(url, { ...init, signal: abort.signal });
        connections.push(response.status);
        return { response, abort };
    };
    const fetching = async (url, init) => {
        let { response, abort } = await open(url, init);
        if (!response.ok) return response;
        let last = "";
        const body = new ReadableStream({
            async start(controller) {
                for (;;) {
                    const cut = cuts.shift() ?? Infinity;
                    const { id, isOver } = await pass(response, abort, cut, controller);
                    last = id || last;
                    if (isOver) return controller.close();
                    ({ response, abort } = await open(`${base}/api/agui/runs/${encodeURIComponent(runId)}`, {
                        headers: { ...init.headers, ...(last && { "Last-Event-ID": last }) },
                    }));
                    if (response.status === 204) return controller.close();
                    if (!response.ok) return controller.error(new Error(`${response.status}: ${await response.text()}`));
                }
            },
        });
        return new Response(body, { headers: { "content-type": "text/event-stream" } });
    };
    return { fetching, connections };
}

/** Passes on events until the end or the cut. */
async function pass(response, abort, cut, controller) {
    const decoder = new TextDecoder();
    let [bytes, text, id] = [0, "", ""];
    const reader = response.body.getReader();
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) {
                // What refuses a request has no ids.
                if (text) controller.enqueue(new TextEncoder().encode(text));
                return { id, isOver: true };
            }
            const taken = value.subarray(0, cut - bytes);
            bytes += taken.length;
            text += decoder.decode(taken, { stream: true });
            for (let end; (end = lastWithId(text)) > 0; ) {
                const events = text.slice(0, end);
                text = text.slice(end);
                id = events.match(/^id: (.*)$/gm).at(-1).slice(4);
                controller.enqueue(new TextEncoder().encode(events));
            }
            if (bytes >= cut) return { id, isOver: false };
        }
    } finally {
        abort.abort();
    }
}

/** Where the last whole event with an id ends. */
function lastWithId(text) {
    const whole = text.lastIndexOf("\n\n") + 2;
    const at = text.lastIndexOf("\nid: ", whole);
    const end = at < 0 && text.startsWith("id: ") ? text.indexOf("\n\n") : at < 0 ? -1 : text.indexOf("\n\n", at);
    return end < 0 || end + 2 > whole ? 0 : end + 2;
}

async function run(order) {
    warnings.length = 0;
    const { fetching, connections } = resuming(order.base, order.runId, order.cut ?? []);
    const agent = new HttpAgent({
        url: `${order.base}/api/agui/agents/${order.agent}`,
        threadId: order.threadId,
        initialMessages: order.messages ?? [],
        headers: order.token ? { Authorization: `Bearer ${order.token}` } : {},
        fetch: fetching,
    });
    if (order.pendingInterrupts) agent.pendingInterrupts = order.pendingInterrupts;
    const events = [];
    let error = null;
    await agent
        .runAgent(
            { runId: order.runId, tools: order.tools, resume: order.resume },
            {
                onEvent: ({ event }) => void events.push(event),
                onRunErrorEvent: ({ event }) => void (error = event),
            },
        )
        .catch((failure) => (error ??= { message: String(failure) }));
    return {
        messages: agent.messages,
        state: agent.state,
        events,
        interrupts: agent.pendingInterrupts,
        error,
        connections,
        warnings: [...warnings],
    };
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await run(JSON.parse(line))));
}
