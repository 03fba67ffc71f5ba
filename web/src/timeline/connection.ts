import type { Connection } from "@runreel/client";

/** The pill's words. `word` changes rarely and is announced; `text` may count down and is not. */
export interface Pill {
  tone: "good" | "busy" | "bad" | "calm";
  word: string;
  text: string;
  canRetry: boolean;
}

export interface PillFacts {
  now_ms: number;
  isOnline: boolean;
  /** The share of the log that was read, 0 to 1; null when its length is not known. */
  progress: number | null;
}

const pill = (tone: Pill["tone"], word: string, text = word, canRetry = false): Pill => ({
  tone,
  word,
  text,
  canRetry,
});

export function pillOf(connection: Connection, facts: PillFacts): Pill {
  switch (connection.state) {
    case "live":
      return pill("good", "Live");
    case "idle":
    case "connecting":
      return pill("busy", "Connecting");
    case "catching-up": {
      const percent = facts.progress === null ? null : Math.floor(facts.progress * 100);
      return pill("busy", "Catching up", percent === null ? "Catching up" : `Catching up ${percent} %`);
    }
    case "reconnecting": {
      if (!facts.isOnline) return pill("bad", "Offline", "Offline", true);
      const seconds = Math.max(0, Math.ceil((connection.retryAt - facts.now_ms) / 1000));
      return pill("bad", "Reconnecting", `Reconnecting in ${seconds} s`, true);
    }
    case "paused":
      return pill("calm", "Paused");
    case "ended":
    case "closed":
      return pill("calm", "Ended");
    case "failed":
      return pill("bad", "Refused");
  }
}
