import { ask, Hub, type Asked } from "./hub";

/** The worker that all tabs of the browser share: each tab is a port. */
const hub = new Hub(ask);
const scope = globalThis as unknown as { onconnect: (event: MessageEvent) => void };

scope.onconnect = ({ ports: [port] }) => {
  if (port === undefined) return;
  const hear = hub.join((said) => port.postMessage(said));
  port.onmessage = ({ data }: MessageEvent<Asked | { kind: "lives"; lock: string }>) => {
    if (data.kind !== "lives") return hear(data);
    // The tab holds this lock as long as it exists.
    void navigator.locks.request(data.lock, () => hear({ kind: "bye" }));
  };
};
