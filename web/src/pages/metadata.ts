const line_chars_max = 160;

/** The members of an object in one line: `customer: Anna, retries: 3`. */
export const inLine = (metadata: Record<string, unknown>): string =>
  Object.entries(metadata)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ")
    .slice(0, line_chars_max);
