// Raises real exceptions inside runs, see README.md.
import { once } from "node:events";
import { createServer } from "node:net";
import process from "node:process";

const { Client } = await import(process.env.RUNREEL_CLIENT ?? "@runreel/client");

class PaymentError extends Error {}

async function caused() {
    try {
        await typed();
    } catch (error) {
        throw new Error("no report for AC-1013", { cause: error });
    }
}

async function typed() {
    const row = undefined;
    return row.customer_id;
}

const group = () => Promise.any([typed(), Promise.reject(new RangeError("row 7 of 3"))]);

/** A port that nobody listens on any more. */
async function refused() {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address();
    await new Promise((closed) => server.close(closed));
    return fetch(`http://127.0.0.1:${port}/v1/chat`);
}

const raised = {
    "javascript cause": caused,
    "javascript group": group,
    "javascript type": typed,
    "javascript json": async () => JSON.parse("{amount: many}"),
    "javascript own class": async () => {
        throw new PaymentError("no money");
    },
    "javascript fetch": refused,
    "javascript text": async () => {
        throw "just text";
    },
    "javascript object": async () => {
        throw { status: 429, message: "slow down" };
    },
    "javascript undefined": async () => {
        throw undefined;
    },
};

const client = new Client({ url: process.env.RUNREEL_URL });
for (const [name, raises] of Object.entries(raised)) {
    const run = client.run({ title: name, agent: "ledger" });
    const plan = run.step("plan");
    const tool = plan.tool("ledger_fetch", { account: "AC-1013" });
    try {
        await raises();
    } catch (error) {
        tool.fail(error);
        plan.fail(error);
        await run.fail(error);
        console.log(`${name}\t${run.run_id}`);
    }
}
