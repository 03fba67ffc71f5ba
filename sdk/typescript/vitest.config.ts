import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["packages/*/test/**/*.test.{ts,tsx}"],
    globalSetup: ["testing/global.ts"],
    environment: "node",
    retry: 0,
    // For a busy machine; what a test waits for comes at once.
    testTimeout: 30_000,
    hookTimeout: 90_000,
  },
});
