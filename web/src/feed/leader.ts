import { ask, Hub, type Asked, type Said, type Tell } from "./hub";

/** Without shared workers, one of the tabs has the hub, and the others exchange letters with it. */
interface Letter {
  to: string;
  from: string;
  asked?: Asked;
  said?: Said;
}

const everybody = "*";
const leader = "leader";

/** Joins the tabs that have the same token. `lost` is called when another tab, or this one, takes the hub over. */
export async function join(
  token: string | null,
  tell: Tell,
  lost: () => void,
): Promise<(asked: Asked) => void> {
  const name = `runreel-stream-${await digest(token ?? "")}`;
  const channel = new BroadcastChannel(name);
  // Held as long as the tab exists: another tab that gets this lock knows that it is gone.
  const own = `runreel-tab-${crypto.randomUUID()}`;
  const post = (letter: Letter) => channel.postMessage(letter);
  let hear: ((asked: Asked) => void) | null = null;
  let leave = () => {};
  const left = new Promise<void>((leaving) => (leave = leaving));
  await new Promise<void>((held) => void navigator.locks.request(own, () => (held(), left)));
  let isGone = false;

  channel.onmessage = ({ data }: MessageEvent<Letter>) => {
    if (data.to === own && data.said !== undefined) tell(data.said);
    if (data.to === everybody && hear === null) lost();
  };
  void navigator.locks.request(name, async () => {
    if (isGone) return;
    const hub = new Hub(ask);
    const tabs = new Map<string, (asked: Asked) => void>();
    channel.addEventListener("message", ({ data }: MessageEvent<Letter>) => {
      if (data.to !== leader || data.asked === undefined) return;
      const { from } = data;
      let tab = tabs.get(from);
      if (tab === undefined) {
        const joined = hub.join((said) => post({ to: from, from: own, said }));
        tab = joined;
        tabs.set(from, joined);
        void navigator.locks.request(from, () => {
          joined({ kind: "bye" });
          tabs.delete(from);
        });
      }
      tab(data.asked);
    });
    hear = hub.join(tell);
    lost();
    post({ to: everybody, from: own });
    await left;
    hear({ kind: "bye" });
    channel.close();
  });
  return (asked) => {
    if (hear !== null) hear(asked);
    else post({ to: leader, from: own, asked });
    if (asked.kind !== "bye") return;
    isGone = true;
    leave();
    if (hear === null) channel.close();
  };
}

/** For tabs that cannot reach each other: a hub of their own. */
export function alone(tell: Tell): (asked: Asked) => void {
  return new Hub(ask).join(tell);
}

async function digest(text: string): Promise<string> {
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
