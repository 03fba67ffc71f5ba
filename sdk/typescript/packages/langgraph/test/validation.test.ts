import * as vitest from "vitest";
import { Tenants } from "../../../testing/tenants.ts";
import { RunreelSaver } from "@runreel/langgraph";

// The suite is written for a runner whose words are everywhere.
const { describe, it, expect, beforeAll, afterAll, beforeEach, afterEach } = vitest;
Object.assign(globalThis, { describe, it, expect, beforeAll, afterAll, beforeEach, afterEach });
const { validate, deltaChannelHistoryTests } = await import("@langchain/langgraph-checkpoint-validation");

let tenants: Tenants;
beforeAll(async () => {
  tenants = await Tenants.start();
});
afterAll(() => tenants.stop());

const initializer = {
  checkpointerName: "RunreelSaver",
  // Each saver is somebody else's, so that it must not see what the others have stored.
  createCheckpointer: () => new RunreelSaver({ url: tenants.url, token: tenants.token() }),
};
validate(initializer);
deltaChannelHistoryTests(initializer);
