import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import { alias } from "./vite.config.ts";

export default defineConfig({
  plugins: [svelte()],
  resolve: { alias },
  // The time is for a busy machine: property tests take seconds there.
  test: {
    include: ["src/**/*.test.ts", "scripts/**/*.test.mjs"],
    environment: "node",
    retry: 0,
    testTimeout: 30_000,
  },
});
