/**
 * Decodes MessagePack, the format of LangGraph's savers, to plain data. Python objects in it are shown by their class
 * and arguments, and never constructed.
 */
export function fromMsgpack(bytes: Uint8Array): unknown {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (!reader.isAtEnd) throw new Error("bytes after the value");
  return value;
}

const depth_max = 64;

class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  value(depth: number): unknown {
    if (depth > depth_max) throw new Error("too deep");
    const head = this.#uint(1);
    if (head < 0x80) return head;
    if (head >= 0xe0) return head - 0x100;
    if (head < 0x90) return this.#map(head & 0x0f, depth);
    if (head < 0xa0) return this.#array(head & 0x0f, depth);
    if (head < 0xc0) return this.#text(head & 0x1f);
    switch (head) {
      case 0xc0:
        return null;
      case 0xc2:
      case 0xc3:
        return head === 0xc3;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return `${this.#take(this.#uint(1 << (head - 0xc4))).length} bytes`;
      case 0xc7:
      case 0xc8:
      case 0xc9:
        return this.#ext(this.#uint(1 << (head - 0xc7)), depth);
      case 0xca:
        return this.#number(4, (at) => this.#view.getFloat32(at));
      case 0xcb:
        return this.#number(8, (at) => this.#view.getFloat64(at));
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.#uint(1 << (head - 0xcc));
      case 0xcf:
        return plainInt(this.#number(8, (at) => this.#view.getBigUint64(at)));
      case 0xd0:
        return this.#number(1, (at) => this.#view.getInt8(at));
      case 0xd1:
        return this.#number(2, (at) => this.#view.getInt16(at));
      case 0xd2:
        return this.#number(4, (at) => this.#view.getInt32(at));
      case 0xd3:
        return plainInt(this.#number(8, (at) => this.#view.getBigInt64(at)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.#text(this.#uint(1 << (head - 0xd9)));
      case 0xdc:
      case 0xdd:
        return this.#array(this.#uint(head === 0xdc ? 2 : 4), depth);
      case 0xde:
      case 0xdf:
        return this.#map(this.#uint(head === 0xde ? 2 : 4), depth);
    }
    if (head >= 0xd4 && head <= 0xd8) return this.#ext(1 << (head - 0xd4), depth);
    throw new Error("no MessagePack");
  }

  #number<T>(size: number, read: (at: number) => T): T {
    const at = this.#at;
    this.#at += size;
    return read(at);
  }

  #uint(size: number): number {
    let value = 0;
    for (const byte of this.#take(size)) value = value * 256 + byte;
    return value;
  }

  #take(size: number): Uint8Array {
    const end = this.#at + size;
    if (end > this.#bytes.length) throw new Error("cut off");
    const part = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return part;
  }

  #text(size: number): string {
    return new TextDecoder().decode(this.#take(size));
  }

  #array(size: number, depth: number): unknown[] {
    const values: unknown[] = [];
    for (let at = 0; at < size; at += 1) values.push(this.value(depth + 1));
    return values;
  }

  #map(size: number, depth: number): Record<string, unknown> {
    const entries: [string, unknown][] = [];
    for (let at = 0; at < size; at += 1) entries.push([String(this.value(depth + 1)), this.value(depth + 1)]);
    return Object.fromEntries(entries);
  }

  /** LangGraph's extensions: a tuple of module, class and arguments. */
  #ext(size: number, depth: number): unknown {
    const code = this.#uint(1);
    const inner = new Reader(this.#take(size));
    try {
      const value = inner.value(depth + 1);
      if (!Array.isArray(value) || typeof value[1] !== "string" || value.length < 3) return value;
      return { [value[1]]: value[2] as unknown };
    } catch {
      return `extension ${code}, ${size} bytes`;
    }
  }
}

const plainInt = (value: bigint) =>
  value >= Number.MIN_SAFE_INTEGER && value <= Number.MAX_SAFE_INTEGER ? Number(value) : String(value);
