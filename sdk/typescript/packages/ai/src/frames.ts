import type { UIMessageChunk } from "ai";

/** The server sends something every 10 s; two and a half silent periods mean a dead peer. */
const idle_ms = 25_000;

/**
 * The chunks of a response as they arrive. Returns true at the end of the message, false when the body ends before it.
 * Throws when the connection breaks or falls silent.
 */
export async function* chunksOf(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<UIMessageChunk, boolean, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await within(idle_ms, reader.read());
      if (done) return false;
      text += decoder.decode(value, { stream: true });
      const frames = text.split("\n\n");
      text = frames.pop() ?? "";
      for (const frame of frames) {
        if (!frame.startsWith("data: ")) continue;
        const data = frame.slice("data: ".length);
        if (data === "[DONE]") return true;
        yield JSON.parse(data) as UIMessageChunk;
      }
    }
  } finally {
    // Also when the reader stops early, and when the connection broke.
    await reader.cancel().catch(() => undefined);
  }
}

async function within<T>(ms: number, wanted: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came for ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([wanted, silence]);
  } finally {
    clearTimeout(timer);
  }
}
