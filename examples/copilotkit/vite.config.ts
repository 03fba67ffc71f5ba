import { defineConfig } from "vite";

export default defineConfig({ build: { chunkSizeWarningLimit: 4_000 } });
