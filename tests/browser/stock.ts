import type { Producer } from "./producer.ts";
import { tripRun } from "./trip.ts";

/** A log with something for every page. */
export async function stock(producer: Producer): Promise<void> {
  await tripRun(producer, true);
}
