// Builds the page and serves it, on PORT; VITE_RUNREEL_URL is where its agent is.
import { build, preview } from "vite";

await build({ logLevel: "warn" });
const port = Number(process.env.PORT ?? 5173);
const server = await preview({ preview: { port, strictPort: true, host: "127.0.0.1" } });
server.printUrls();
