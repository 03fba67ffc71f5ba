import { Client } from "@runreel/client";
import type { UIMessage } from "ai";

/** What was said in a chat, without the answer that is under way: that one is resumed. */
export async function history(url: string, thread_id: string): Promise<UIMessage[]> {
  const client = new Client({ url });
  const [newest] = (await client.runs.list({ thread_id, limit: 1 })).runs;
  // A chat that nobody has begun.
  if (newest === undefined) return [];
  const { messages } = await client.threads.messages(thread_id, { limit: 1000 });
  const isUnderWay = (run_id: string) => run_id === newest.run_id && newest.ended_at === null;
  return messages
    .filter(({ role, run_id }) => role === "user" || !isUnderWay(run_id))
    .map(({ run_id, seq, role, text }) => ({
      id: `${run_id}.${seq}`,
      role: role === "user" ? "user" : "assistant",
      parts: [{ type: "text", text: text ?? "" }],
    }));
}
