import type { SerializerProtocol } from "@langchain/langgraph-checkpoint";

/** A value as the server stores it: the name of its type and its bytes, which it never decodes. */
export interface Typed {
  t: string;
  /** Base64; absent for no bytes. */
  b?: string;
}

export async function typed(serde: SerializerProtocol, value: unknown): Promise<Typed> {
  const [t, bytes] = await serde.dumpsTyped(value);
  return bytes.length > 0 ? { t, b: base64(bytes) } : { t };
}

/** Throws what the serialiser throws for a type it does not know, such as the `msgpack` of a Python program. */
export async function loaded(serde: SerializerProtocol, { t, b = "" }: Typed): Promise<unknown> {
  return serde.loadsTyped(t, bytesOf(b)) as Promise<unknown>;
}

/** Maximum number of arguments of one call, which must fit on the stack. */
const characters_max = 0x8000;

function base64(bytes: Uint8Array): string {
  let binary = "";
  for (let start = 0; start < bytes.length; start += characters_max) {
    binary += String.fromCharCode(...bytes.subarray(start, start + characters_max));
  }
  return btoa(binary);
}

function bytesOf(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}
