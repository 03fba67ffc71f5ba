export type { components } from "@runreel/client";
