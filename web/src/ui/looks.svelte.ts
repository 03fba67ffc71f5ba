import { Choice } from "./choice.svelte";

/** `system` leaves the choice to the browser. */
export const theme = new Choice("runreel.theme", "theme", ["system", "light", "dark"]);

export const density = new Choice("runreel.density", "density", ["compact", "comfortable"]);

/** The time zone in which all times are shown: the browser's own, or UTC. */
export const zone = new Choice("runreel.zone", "zone", ["local", "utc"]);

/** The height of a row of the virtual lists, in CSS `--row`. */
export const row_px = { compact: 28, comfortable: 36 };

/** The height of a row of a table, in CSS `--table-row`. */
export const table_row_px = { compact: 40, comfortable: 52 };
