import { defineConfig } from "vite";

// The packages are linked from this repository, which has a React of its own; one from npm needs no such line.
export default defineConfig({ resolve: { dedupe: ["react", "react-dom"] } });
