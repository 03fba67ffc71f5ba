import { readToken } from "../api/token";
import { onHear } from "../feed/hear";
import { inbox } from "../feed/inbox.svelte";
import { router } from "./router.svelte";
import { askedBefore } from "./sqlhistory.svelte";
import { browserTab } from "./tab.svelte";

let token = readToken();

/**
 * Keeps the number of open interrupts current on every page: read when a page is opened, when the tab becomes visible,
 * and when the page's stream has an event about an interrupt. `changed` is called when another tab changed the
 * remembered token, and with it this tab's.
 */
export function start(changed: () => void): void {
  addEventListener("storage", () => {
    if (readToken() !== token) changed();
  });
  onHear((type) => inbox.hear(type));
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") inbox.look();
  });
  inbox.onnew = ({ run, prompt, interrupt_id }) => {
    if (document.visibilityState === "visible" || !("Notification" in globalThis)) return;
    if (Notification.permission !== "granted") return;
    const title = run.title || run.agent || "A run waits for you";
    new Notification(title, { body: prompt ?? "", tag: interrupt_id });
  };
  $effect.root(() => {
    $effect(() => {
      browserTab.asking = inbox.list.length;
    });
    $effect(() => {
      void router.path;
      inbox.look();
    });
  });
}

/** Forgets what belongs to the previous token, which may be another person's. */
export function forget(): void {
  token = readToken();
  inbox.forget();
  askedBefore.clear();
}
