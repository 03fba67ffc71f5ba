/** Maximum number of pixels that are drawn: in memory each takes four bytes, however small the file is. */
export const pixels_max = 40_000_000;
/** The beginning of a file, in which formats have the size of their image. */
const head_bytes = 1_000_000;

/** Why an image is not drawn, for people; null when it can be. */
export async function undrawable(image: Blob): Promise<string | null> {
  const pixels = pixelsOf(new DataView(await image.slice(0, head_bytes).arrayBuffer()));
  if (pixels === null) return "How large this image is cannot be read. Download it.";
  return pixels > pixels_max ? "It has too many pixels to be shown. Download it." : null;
}

/** The number of pixels of a PNG, JPEG, GIF, WebP or BMP, from its header; null for everything else. */
export function pixelsOf(head: DataView): number | null {
  const word = (at: number, chars: number) =>
    String.fromCharCode(...new Uint8Array(head.buffer, head.byteOffset + at, chars));
  const triple = (at: number) => 1 + head.getUint16(at, true) + head.getUint8(at + 2) * 65_536;
  try {
    if (word(1, 3) === "PNG") return head.getUint32(16) * head.getUint32(20);
    if (head.getUint16(0) === 0xffd8) return ofJpeg(head);
    if (word(0, 4) === "GIF8") return ofGif(head);
    if (word(0, 2) === "BM") return Math.abs(head.getInt32(18, true) * head.getInt32(22, true));
    if (word(0, 4) !== "RIFF" || word(8, 4) !== "WEBP") return null;
    const kind = word(12, 4);
    if (kind === "VP8X") return triple(24) * triple(27);
    if (kind === "VP8 ") return (head.getUint16(26, true) & 0x3fff) * (head.getUint16(28, true) & 0x3fff);
    const bits = head.getUint32(21, true);
    return kind === "VP8L" ? ((bits & 0x3fff) + 1) * (((bits >> 14) & 0x3fff) + 1) : null;
  } catch {
    // The file ends within its header.
    return null;
  }
}

/** A file of segments; the one that begins the frame has the size. */
function ofJpeg(head: DataView): number | null {
  for (let at = 2; ;) {
    if (head.getUint8(at) !== 0xff) return null;
    const marker = head.getUint8(at + 1);
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return head.getUint16(at + 5) * head.getUint16(at + 7);
    // Segments without a length are not skipped.
    if (marker < 0xc0 || (marker >= 0xd0 && marker <= 0xd9)) return null;
    // A marker may be preceded by fill bytes (0xff).
    at += marker === 0xff ? 1 : 2 + head.getUint16(at + 2);
  }
}

/** The size of the screen, or of the first image where that is larger. */
function ofGif(head: DataView): number | null {
  const colors = (flags: number) => (flags & 0x80 ? 3 * 2 ** ((flags & 7) + 1) : 0);
  const size = (at: number) => [head.getUint16(at, true), head.getUint16(at + 2, true)] as const;
  const [width, height] = size(6);
  for (let at = 13 + colors(head.getUint8(10)); ;) {
    const kind = head.getUint8(at);
    if (kind === 0x2c) {
      const [left, top] = size(at + 1);
      const [right, bottom] = size(at + 5);
      return Math.max(width, left + right) * Math.max(height, top + bottom);
    }
    if (kind !== 0x21) return null;
    // An extension: blocks, of which the last is empty.
    at += 2;
    while (head.getUint8(at) > 0) at += 1 + head.getUint8(at);
    at += 1;
  }
}
