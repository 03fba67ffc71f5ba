/** `$0.0056`, `$1.20`, `$1,204.00`; small sums have four decimal places. */
export function money(usd: number): string {
  if (usd === 0) return "$0";
  if (usd < 0.0001) return "< $0.0001";
  return usd < 0.1 ? `$${usd.toFixed(4)}` : `$${dollars.format(usd)}`;
}

const dollars = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** `812`, `14.2K`, `3.1M`. */
export const short = (value: number): string => compact.format(value);
