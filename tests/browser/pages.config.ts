import { defineConfig } from "@playwright/test";
import base from "./playwright.config.ts";

/** The pages around a run, one by one: `./just pages`. What every change must pass is in `*.spec.ts`. */
export default defineConfig({ ...base, testMatch: "*.pages.ts" });
