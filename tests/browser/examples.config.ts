import { defineConfig } from "@playwright/test";
import base from "./playwright.config.ts";

/** The examples, whose packages `./just examples` installs. */
export default defineConfig({ ...base, testMatch: "examples*.spec.ts", testIgnore: [], timeout: 180_000 });
