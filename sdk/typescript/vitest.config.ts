import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["packages/*/test/**/*.test.{ts,tsx}", "protocols/*.test.ts"],
    globalSetup: ["testing/global.ts"],
    environment: "node",
    retry: 0,
    // More than there are cores: tests wait for servers, cuts and clocks.
    maxWorkers: 4,
    // For a busy machine; what a test waits for comes at once.
    testTimeout: 120_000,
    hookTimeout: 90_000,
  },
});
