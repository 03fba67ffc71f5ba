import { failureLine, failureOf, fields } from "@runreel/client/fold";

/**
 * The title of an event that arrived in full: one line, by the rule of the server for the titles of a run's index.
 */
export function titleOf(type: string, payload: unknown): string {
  const from = fields(payload);
  const dot = type.indexOf(".");
  const [family, action] = [type.slice(0, dot), type.slice(dot + 1)];
  const words = (...names: string[]) =>
    names.map((name) => plain(from[name])).find((text) => text.trim() !== "") ?? "";
  const error = () => {
    const failure = failureOf(payload);
    return failure === null ? "" : clip(`error: ${failureLine(failure)}`, part_chars_max);
  };
  const orJson = (...parts: string[]) =>
    line(parts) || (payload == null || JSON.stringify(payload) === "{}" ? "" : line([short(payload)]));
  if ("$artifact" in from) return line([words("preview")]);
  switch (family) {
    case "run":
      if (action === "created") return line([words("title", "input")]);
      if (action === "completed") return line([words("output")]);
      return line(action === "failed" ? [words("name"), error()] : [words("reason", "message")]);
    case "tool":
      if (action === "started") return line([`${words("name") || "tool"}(${clip(argsOf(from["args"]))})`]);
      if (action === "completed") return line([words("name"), prefixed("→ ", words("result", "output"))]);
      if (action === "failed") return line([words("name"), error()]);
      return orJson();
    case "step":
      return line(action === "failed" ? [words("name"), error()] : [words("name", "title")]);
    case "worker": {
      const child = prefixed("run ", words("run_id"));
      return line([words("agent", "name", "title"), words("summary"), error(), child]);
    }
    case "message":
    case "reasoning": {
      if (action !== "completed") return orJson();
      const role = words("role");
      return line([role === "assistant" || role === "" ? "" : `${role}:`, words("content", "text", "parts")]);
    }
    case "artifact":
      return line([
        words("name"),
        words("media_type"),
        typeof from["size"] === "number" ? `${from["size"]} bytes` : "",
      ]);
    case "interrupt":
      if (action !== "requested") return line([words("decision"), words("value")]);
      return orJson(words("message", "prompt", "question", "reason", "value"));
    case "log":
      return orJson(words("message", "text"));
    default:
      return orJson();
  }
}

/** A value in one line. */
export const previewOf = (value: unknown): string => line([plain(value)]);

const title_chars_max = 120;
/** For one member. */
const part_chars_max = 400;

const prefixed = (prefix: string, text: string) => (text === "" ? "" : prefix + text);

/** Also copies the text, so that a title does not keep a long payload alive. */
const line = (parts: string[]) =>
  clip(
    parts
      .filter((part) => part.trim() !== "")
      .join(" ")
      .replace(/[\n\t\r\u2028\u2029]/g, " ")
      .trim(),
  );

function clip(text: string, chars_max = title_chars_max): string {
  if (text.length <= chars_max) return text;
  const chars = [...text.slice(0, 2 * chars_max)];
  return chars.length <= chars_max ? text : `${chars.slice(0, chars_max - 1).join("")}…`;
}

const short = (value: unknown) => clip(JSON.stringify(value) ?? "", part_chars_max);

/** A text unchanged, content parts as their texts, an object with a message as that, anything else as JSON. */
function plain(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return clip(value, part_chars_max);
  if (Array.isArray(value)) {
    const texts = value.map((part) => fields(part)["text"]).filter((text) => typeof text === "string");
    if (texts.length > 0) return clip(texts.join(" "), part_chars_max);
  }
  const { message, text, detail } = fields(value);
  const own = [message, text, detail].find((each) => typeof each === "string") as string | undefined;
  const words = own === undefined ? short(value) : clip(own, part_chars_max);
  return words === "{}" || words === "[]" ? "" : words;
}

function argsOf(args: unknown): string {
  if (args === undefined || args === null) return "";
  if (typeof args !== "object" || Array.isArray(args)) return short(args);
  return Object.entries(args)
    .map(([name, value]) => `${name}: ${short(value)}`)
    .join(", ");
}
