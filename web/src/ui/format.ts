/** `820 ms`, `4.2 s`, `1 m 04 s`, `3 h 07 m`. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "–";
  if (ms < 1) return ms === 0 ? "0 ms" : `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${two(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const two = (value: number) => String(value).padStart(2, "0");

/** `in 42 s`, `in 4 m 05 s`; `now` from that time on. */
export function until(then_ms: number, now_ms: number): string {
  const seconds = Math.ceil((then_ms - now_ms) / 1000);
  if (seconds <= 0) return "now";
  return `in ${seconds < 60 ? `${seconds} s` : duration(seconds * 1000)}`;
}

const grouped = new Intl.NumberFormat("en");

export const count = (value: number): string => grouped.format(value);

/** The end of a UUID: it begins with a time, the same for all runs of a day. */
export const shortId = (id: string): string => (id.length > 12 ? `…${id.slice(-8)}` : id);

/** `812 B`, `4.1 KB`, `2.0 MB`. */
export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  const units = ["KB", "MB", "GB"];
  let at = -1;
  let value = size;
  do {
    value /= 1000;
    at += 1;
  } while (value >= 999.95 && at < units.length - 1);
  return `${value.toFixed(1)} ${units[at]}`;
}
