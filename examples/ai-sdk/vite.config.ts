import { defineConfig } from "vite";

// The packages are linked from this repository, which has a React and an AI SDK of its own; those from npm need no such line.
export default defineConfig({ resolve: { dedupe: ["react", "react-dom", "ai"] } });
