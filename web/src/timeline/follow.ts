/**
 * Whether a list follows its end. Only the reader's own actions detach it; content that grows never does.
 */
export interface Follow {
  mode: "following" | "detached";
  /** The number of rows when the reader detached the list; later rows are counted as new. */
  seen: number;
}

export type FollowInput =
  | { kind: "scrolled"; at_end: boolean; away: boolean }
  | { kind: "opened" }
  | { kind: "asked_for_end" }
  | { kind: "toggled" };

export const following: Follow = { mode: "following", seen: 0 };
export const detached = (seen: number): Follow => ({ mode: "detached", seen });

/** `away`: the position is above where the list itself had last scrolled to. */
export function step(follow: Follow, input: FollowInput, rows: number): Follow {
  switch (input.kind) {
    case "scrolled":
      if (follow.mode === "following") return input.away ? detached(rows) : follow;
      return input.at_end ? following : follow;
    case "opened":
      return follow.mode === "following" ? detached(rows) : follow;
    case "asked_for_end":
      return following;
    case "toggled":
      return follow.mode === "following" ? detached(rows) : following;
  }
}

export function newRows(follow: Follow, rows: number): number {
  return follow.mode === "following" ? 0 : Math.max(0, rows - follow.seen);
}
