import { Client, RunreelError } from "@runreel/client";
import type { UIMessage } from "ai";

/** What was said in a chat, without the answer that is under way: that one is resumed. */
export async function history(url: string, id: string): Promise<UIMessage[]> {
  const client = new Client({ url });
  try {
    const [newest] = (await client.threads.runs(id, { limit: 1 })).runs;
    const { messages } = await client.threads.messages(id, { limit: 1000 });
    const isUnderWay = (run_id: string) => run_id === newest?.run_id && newest.ended_at === null;
    return messages
      .filter(({ role, run_id }) => role === "user" || !isUnderWay(run_id))
      .map(({ run_id, seq, role, text }) => ({
        id: `${run_id}.${seq}`,
        role: role === "user" ? "user" : "assistant",
        parts: [{ type: "text", text: text ?? "" }],
      }));
  } catch (error) {
    // A chat that nobody has begun.
    if (error instanceof RunreelError && error.code === "not_found") return [];
    throw error;
  }
}
