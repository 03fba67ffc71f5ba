/** The value of a checkpoint, when its serialiser is one that can be read without running anything. */
export interface Typed {
  t: string;
  b?: string;
}

export function bytesOf(text: string): Uint8Array {
  const binary = atob(text);
  return Uint8Array.from(binary, (char) => char.charCodeAt(0));
}

/** What it holds; when it cannot be read, its type and size. */
export function decoded(typed: unknown): unknown {
  const { t, b = "" } = (typed ?? {}) as Partial<Typed>;
  if (typeof t !== "string") return typed;
  if (t === "null" || t === "empty") return null;
  try {
    const bytes = bytesOf(b);
    if (t === "json") return JSON.parse(new TextDecoder().decode(bytes)) as unknown;
    if (t === "msgpack") return new Msgpack(bytes).whole();
    if (t === "bytes" || t === "bytearray") return `${bytes.length} bytes`;
    return { type: t, bytes: bytes.length };
  } catch {
    return { type: t, unreadable: true, base64_chars: b.length };
  }
}

const nesting_max = 64;

/** A reader of MessagePack. Extensions are what they hold: a class's name and its members are shown, nothing is made. */
export class Msgpack {
  readonly #view: DataView;
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  whole(): unknown {
    const value = this.#value(0);
    if (this.#at !== this.#bytes.length) throw new RangeError("more than one value");
    return value;
  }

  #value(depth: number): unknown {
    if (depth > nesting_max) throw new RangeError("nested too deeply");
    const tag = this.#uint(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.#map(tag & 15, depth);
    if (tag < 0xa0) return this.#list(tag & 15, depth);
    if (tag < 0xc0) return this.#text(tag & 31);
    if (tag >= 0xe0) return tag - 256;
    switch (tag) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xca:
        return this.#number(4, (at) => this.#view.getFloat32(at));
      case 0xcb:
        return this.#number(8, (at) => this.#view.getFloat64(at));
      case 0xcf:
        return plain(this.#number(8, (at) => this.#view.getBigUint64(at)));
      case 0xd3:
        return plain(this.#number(8, (at) => this.#view.getBigInt64(at)));
    }
    if (tag >= 0xc4 && tag <= 0xc6) return `${this.#take(this.#uint(1 << (tag - 0xc4))).length} bytes`;
    if (tag >= 0xc7 && tag <= 0xc9) return this.#extension(this.#uint(1 << (tag - 0xc7)), depth);
    if (tag >= 0xcc && tag <= 0xce) return this.#uint(1 << (tag - 0xcc));
    if (tag === 0xd0) return this.#number(1, (at) => this.#view.getInt8(at));
    if (tag === 0xd1) return this.#number(2, (at) => this.#view.getInt16(at));
    if (tag === 0xd2) return this.#number(4, (at) => this.#view.getInt32(at));
    if (tag >= 0xd4 && tag <= 0xd8) return this.#extension(1 << (tag - 0xd4), depth);
    if (tag >= 0xd9 && tag <= 0xdb) return this.#text(this.#uint(1 << (tag - 0xd9)));
    if (tag === 0xdc || tag === 0xdd) return this.#list(this.#uint(tag === 0xdc ? 2 : 4), depth);
    if (tag === 0xde || tag === 0xdf) return this.#map(this.#uint(tag === 0xde ? 2 : 4), depth);
    throw new RangeError("no such type");
  }

  #number<T>(size: number, read: (at: number) => T): T {
    const value = read(this.#at);
    this.#at += size;
    return value;
  }

  #uint(size: number): number {
    if (size === 1) return this.#number(1, (at) => this.#view.getUint8(at));
    if (size === 2) return this.#number(2, (at) => this.#view.getUint16(at));
    return this.#number(4, (at) => this.#view.getUint32(at));
  }

  #take(length: number): Uint8Array {
    if (this.#at + length > this.#bytes.length) throw new RangeError("cut off");
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  #text = (length: number): string => new TextDecoder().decode(this.#take(length));

  #list(length: number, depth: number): unknown[] {
    const list: unknown[] = [];
    for (let at = 0; at < length; at += 1) list.push(this.#value(depth + 1));
    return list;
  }

  #map(length: number, depth: number): Record<string, unknown> {
    const entries: [string, unknown][] = [];
    for (let at = 0; at < length; at += 1) {
      const key = this.#value(depth + 1);
      entries.push([typeof key === "string" ? key : JSON.stringify(key), this.#value(depth + 1)]);
    }
    return Object.fromEntries(entries);
  }

  /** Serialisers of Python put a list into it: module, class, then what it was made of. */
  #extension(length: number, depth: number): unknown {
    const code = this.#number(1, (at) => this.#view.getInt8(at));
    const bytes = this.#take(length);
    try {
      const held = new Msgpack(bytes).#inner(depth + 1);
      const [module, name, made] = Array.isArray(held) ? held : [];
      if (typeof module === "string" && typeof name === "string") return { [name]: made ?? null };
      return held;
    } catch {
      return { extension: code, bytes: length };
    }
  }

  #inner(depth: number): unknown {
    const value = this.#value(depth);
    if (this.#at !== this.#bytes.length) throw new RangeError("more than one value");
    return value;
  }
}

/** Numbers that JavaScript has no room for stay digits. */
const plain = (value: bigint): number | string => {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value.toString();
};
