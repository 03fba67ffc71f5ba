/** Pictures as PNG: three bytes of colour a pixel, lines without filters, which is the smallest for pages. */

import { crc32, deflateSync, inflateSync } from "node:zlib";

const signature = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);
const pixel_bytes = 3;

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  sum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, sum]);
}

/** `lines`: each a 0 and its pixels. */
export function encoded(width: number, height: number, lines: Uint8Array): Buffer {
  const head = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0]);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  const data = deflateSync(lines, { level: 9 });
  return Buffer.concat([signature, chunk("IHDR", head), chunk("IDAT", data), chunk("IEND", Buffer.alloc(0))]);
}

/** The same picture in fewer bytes than the browser takes for it. */
export function smaller(png: Buffer): Buffer {
  const [width, height] = [png.readUInt32BE(16), png.readUInt32BE(20)];
  if (png[24] !== 8 || png[25] !== 2) return png;
  const parts: Buffer[] = [];
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") parts.push(png.subarray(at + 8, at + 8 + length));
    at += 12 + length;
  }
  return encoded(width, height, unfiltered(inflateSync(Buffer.concat(parts)), width * pixel_bytes));
}

function unfiltered(data: Buffer, line_bytes: number): Buffer {
  const stride = line_bytes + 1;
  for (let start = 0; start < data.length; start += stride) {
    const filter = data[start] as number;
    data[start] = 0;
    for (let at = start + 1; at < start + stride; at += 1) {
      const isFirst = at - start <= pixel_bytes;
      const left = isFirst ? 0 : (data[at - pixel_bytes] as number);
      const above = start === 0 ? 0 : (data[at - stride] as number);
      const corner = isFirst || start === 0 ? 0 : (data[at - stride - pixel_bytes] as number);
      const told = [0, left, above, (left + above) >> 1, nearest(left, above, corner)][filter] as number;
      data[at] = ((data[at] as number) + told) & 255;
    }
  }
  return data;
}

/** The one of the three that is nearest to what they let expect. */
function nearest(left: number, above: number, corner: number): number {
  const [l, a, c] = [Math.abs(above - corner), Math.abs(left - corner), Math.abs(left + above - 2 * corner)];
  if (l <= a && l <= c) return left;
  return a <= c ? above : corner;
}
