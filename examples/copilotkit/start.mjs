// Builds the page unless it was built, and serves it and CopilotKit's runtime on PORT. RUNREEL_URL and RUNREEL_TOKEN say where the log is.
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { RunreelRunner } from "@runreel/copilotkit";
import { access, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { build } from "vite";
import { Guide } from "./agent.mjs";

const dist = join(import.meta.dirname, "dist");
await access(dist).catch(() => build({ logLevel: "error" }));

const runner = new RunreelRunner();
const runtime = new CopilotRuntime({ agents: { guide: new Guide({ agentId: "guide" }) }, runner });
const copilotkit = createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" });

const types = { ".css": "text/css", ".html": "text/html", ".js": "text/javascript" };

/** A file of the page. */
async function file({ url }, response) {
  const { pathname } = new URL(url, "http://page");
  const path = pathname === "/" ? "/index.html" : pathname;
  try {
    const bytes = await readFile(join(dist, path));
    response.writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" }).end(bytes);
  } catch {
    response.writeHead(404).end();
  }
}

const port = Number(process.env.PORT ?? 4000);
createServer((request, response) =>
  request.url.startsWith("/api/copilotkit") ? copilotkit(request, response) : file(request, response),
).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}`));
