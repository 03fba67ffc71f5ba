import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// The server that `npm run dev` talks to; it must answer on the same origin as the UI, so it is proxied.
const server = process.env["RUNREEL_URL"] ?? "http://127.0.0.1:7717";
// The pages below /docs are built ones, and so are the files that they name.
const proxied = ["/api", "/docs", "/assets", "/openapi.json", "/livez", "/readyz", "/metrics"];

/** The package's sources: the UI is built with it, needs nothing of its workspace, and takes only what it uses. */
const sources = (entry: string) =>
  fileURLToPath(new URL(`../sdk/typescript/packages/client/src/${entry}.ts`, import.meta.url));
export const alias = { "@runreel/client/fold": sources("fold"), "@runreel/client": sources("index") };

const base =
  /node_modules\/svelte\/|client\/src\/(?!index|client|stream|sse|backoff|status|failure)|src\/(api\/client|api\/token\.|ui\/(clock|format|Icon|StatusBadge|looks|choice)|timeline\/[Cc]onnection|feed\/(follower|read\.|facts|hear))/;

export default defineConfig({
  plugins: [svelte()],
  resolve: { alias },
  build: {
    manifest: true,
    rolldownOptions: {
      input: ["index.html", "docs.html", "guide.html"],
      // What every page needs is one file: it compresses better than many.
      output: { codeSplitting: { groups: [{ name: "base", test: base }] } },
    },
    // The policy is `default-src 'self'`: a data: URI would be refused, so nothing is ever inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    // These know `light-dark()`; without the hint it is rewritten into something longer.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
  },
  // The server compares `Origin` with `Host`, so the browser's `Host` passes through.
  server: {
    fs: { allow: [".", "../sdk/typescript/packages/client/src"] },
    proxy: Object.fromEntries(proxied.map((path) => [path, { target: server, changeOrigin: false }])),
  },
});
