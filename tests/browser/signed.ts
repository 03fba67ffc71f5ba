import { createHmac } from "node:crypto";

export const secret = "a secret of at least thirty-two bytes";

/** A token as an application's own backend signs it. */
export function signed(subject: string): string {
  const claims = { sub: subject, exp: Math.floor(Date.now() / 1000) + 3_600 };
  const text = [{ alg: "HS256", typ: "JWT" }, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}
