import { defineConfig } from "@playwright/test";
import base from "./playwright.config.ts";

/** The run page's figures, printed and never a reason to fail: `npm run measure`. */
export default defineConfig({
  ...base,
  testMatch: "*.measure.ts",
  timeout: 300_000,
  use: { ...base.use, actionTimeout: 0, navigationTimeout: 0 },
});
