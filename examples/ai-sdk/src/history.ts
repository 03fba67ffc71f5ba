import { Client } from "@runreel/client";
import type { UIMessage } from "ai";

export interface Past {
  messages: UIMessage[];
  /** Whether an answer was under way: it is not among the messages, but resumed. */
  resume: boolean;
}

/** What was said in a chat. */
export async function history(url: string, thread_id: string): Promise<Past> {
  const client = new Client({ url });
  const [newest] = (await client.runs.list({ thread_id, limit: 1 })).runs;
  // A chat that nobody has begun.
  if (newest === undefined) return { messages: [], resume: false };
  const resume = newest.ended_at === null;
  const { messages } = await client.threads.messages(thread_id, { limit: 1000 });
  const end = resume ? messages.findLastIndex(({ role }) => role === "user") + 1 : messages.length;
  const shown = messages.slice(0, end).filter(({ role, text }) => role !== "tool" && text);
  const said = shown.map(
    ({ run_id, seq, role, text }): UIMessage => ({
      id: `${run_id}.${seq}`,
      role: role === "user" ? "user" : "assistant",
      parts: [{ type: "text", text: text ?? "" }],
    }),
  );
  return { messages: said, resume };
}
