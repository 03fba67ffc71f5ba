import { defineConfig } from "@playwright/test";
import base from "./playwright.config.ts";

/** Pictures of every page, each checked with axe: `npm run looks`. */
export default defineConfig({ ...base, testMatch: "*.looks.ts", timeout: 600_000 });
