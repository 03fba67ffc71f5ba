/** A frame of an event stream: its name, its `id:` (null when it has none), and its data. */
export type OnFrame = (type: string, id: string | null, data: string) => void;

/**
 * Parses `text/event-stream` by the WHATWG rules from chunks that are cut anywhere, but with the `id` of the frame
 * itself, since a frame without one cannot be resumed from. `TextDecoder` has already removed a byte order mark.
 * `onRetry` gets the milliseconds of `retry:`. A package for this would add a kilobyte to a page; the tests compare
 * this parser with one.
 */
export function sseParser(onFrame: OnFrame, onRetry: (retry_ms: number) => void): (chunk: string) => void {
  let rest = "";
  let type = "";
  let id: string | null = null;
  let data: string[] = [];

  const take = (line: string) => {
    if (line === "") {
      if (data.length > 0) onFrame(type || "message", id, data.join("\n"));
      type = "";
      id = null;
      data = [];
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") data.push(value);
    else if (name === "event") type = value;
    else if (name === "id" && !value.includes("\0")) id = value;
    else if (name === "retry" && /^\d+$/.test(value)) onRetry(Number(value));
  };

  return (chunk) => {
    const text = rest + chunk;
    let from = 0;
    // A long line arrives in many chunks: only new text is searched. A CR at the end may have its LF in the next chunk.
    const ends = /\r\n|\n|\r(?!$)/g;
    ends.lastIndex = Math.max(0, rest.length - 1);
    for (let end = ends.exec(text); end !== null; end = ends.exec(text)) {
      take(text.slice(from, end.index));
      from = ends.lastIndex;
    }
    rest = text.slice(from);
  };
}
