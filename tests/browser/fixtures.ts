import { test as base, expect } from "@playwright/test";
import { Producer } from "./producer.ts";
import { Server, startAndStop_ms } from "./server.ts";
import { Wire } from "./wire.ts";

interface Fixtures {
  server: Server;
  wire: Wire;
  producer: Producer;
  /** What went wrong in the page beside the test's own assertions: must be empty at its end. */
  complaints: string[];
  /** Cuts make the browser log failed requests; a test that cuts says so. */
  allowsCuts: boolean;
  /** Statuses of the server that a test means to see; the browser logs every refusal. */
  allowsStatus: number[];
}

export const test = base.extend<Fixtures, { made: Server }>({
  allowsCuts: [false, { option: true }],
  allowsStatus: [[], { option: true }],
  made: [
    async ({}, use) => {
      const made = await Server.start();
      try {
        await made.stop();
        await use(made);
      } finally {
        await made.remove();
      }
    },
    { scope: "worker", timeout: startAndStop_ms },
  ],
  server: [
    async ({ made }, use) => {
      const server = await Server.start(made);
      try {
        await use(server);
        await server.stop();
      } finally {
        await server.remove();
      }
    },
    { timeout: startAndStop_ms },
  ],
  wire: async ({ server }, use) => {
    const wire = await Wire.to(() => server.port);
    await use(wire);
    await wire.close();
  },
  producer: async ({ server }, use) => {
    await use(new Producer(() => server.url));
  },
  complaints: [
    // The page after the server, hence closed before it: a server that stops lets its readers finish first.
    async ({ server, wire, page, allowsCuts, allowsStatus }, use, info) => {
      const complaints: string[] = [];
      const own = new Set([server.url, wire.url]);
      page.on("request", (request) => {
        const { protocol, origin } = new URL(request.url());
        if (protocol !== "blob:" && !own.has(origin)) complaints.push(`left the origin: ${request.url()}`);
      });
      page.on("pageerror", (error) => complaints.push(`threw: ${error.message}`));
      page.on("console", (message) => {
        if (message.type() !== "error" && message.type() !== "warning") return;
        const isNetwork = message.text().startsWith("Failed to load resource: net::");
        const isMeant = allowsStatus.some((status) => message.text().includes(`a status of ${status} `));
        if (!(allowsCuts && isNetwork) && !isMeant) complaints.push(`console: ${message.text()}`);
      });
      await page.addInitScript(() => {
        document.addEventListener("securitypolicyviolation", (event) =>
          console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`),
        );
      });
      await use(complaints);
      if (info.status === info.expectedStatus) expect(complaints).toEqual([]);
      else await info.attach("complaints", { body: complaints.join("\n") });
    },
    { auto: true },
  ],
});

export { expect };
