import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: ".",
  testMatch: "*.spec.ts",
  // They need packages of their own: `npm run examples`.
  testIgnore: "examples*.spec.ts",
  // Each test has a server and a database of its own; a machine with two cores carries one at a time.
  workers: 1,
  retries: 0,
  forbidOnly: true,
  // These end what hangs; how soon something must be there is said by the test that asks for it.
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [["list"]],
  outputDir: "test-results",
  use: {
    // Less than a test has, so that what hangs is named.
    actionTimeout: 40_000,
    navigationTimeout: 40_000,
    browserName: "chromium",
    viewport: { width: 1280, height: 800 },
    timezoneId: "UTC",
    locale: "en-GB",
    launchOptions: {
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
});
