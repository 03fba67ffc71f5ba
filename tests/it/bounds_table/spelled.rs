//! Bounds as the table spells them.

/// 8 388 608 as `8 MiB`.
pub(super) fn bytes(count: impl TryInto<u64>) -> String {
    let count = whole(count);
    for (size, unit) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if count >= size && count.is_multiple_of(size) {
            return format!("{} {unit}", grouped(count / size));
        }
    }
    format!("{} bytes", grouped(count))
}

/// 65 536 KiB as `64 MiB`.
pub(super) fn kib(count: impl TryInto<u64>) -> String {
    bytes(whole(count) * 1024)
}

/// 10000 as `10 000`.
pub(super) fn n(count: impl TryInto<u64>) -> String {
    grouped(whole(count))
}

/// 4 500 ms as `4.5 s`.
pub(super) fn s(ms: impl TryInto<u64>) -> String {
    let ms = whole(ms);
    let tenths = ms % 1_000 / 100;
    assert_eq!(ms % 100, 0, "{ms} ms are not whole tenths of a second");
    if tenths == 0 { format!("{} s", grouped(ms / 1_000)) } else { format!("{}.{tenths} s", ms / 1_000) }
}

pub(super) fn min(ms: impl TryInto<u64>) -> String {
    format!("{} min", parts(ms, 60_000))
}

pub(super) fn minutes(seconds: impl TryInto<u64>) -> String {
    format!("{} minutes", parts(seconds, 60))
}

pub(super) fn hours(ms: impl TryInto<u64>) -> String {
    format!("{} h", parts(ms, 3_600_000))
}

pub(super) fn days(seconds: impl TryInto<u64>) -> String {
    format!("{} days", n(parts(seconds, 24 * 3_600)))
}

pub(super) fn years(seconds: impl TryInto<u64>) -> String {
    format!("{} years", parts(seconds, 365 * 24 * 3_600))
}

/// How often a unit is in a bound, which is a whole number of them.
pub(super) fn parts(count: impl TryInto<u64>, unit: u64) -> u64 {
    let count = whole(count);
    assert!(count.is_multiple_of(unit), "{count} is no multiple of {unit}");
    count / unit
}

pub(super) fn whole(count: impl TryInto<u64>) -> u64 {
    count.try_into().unwrap_or_else(|_| panic!("a bound is not negative"))
}

pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    if digits.len() < 4 {
        return digits;
    }
    let head = digits.len() % 3;
    let groups = digits.as_bytes()[head..].chunks(3).map(|group| str::from_utf8(group).unwrap());
    let all: Vec<&str> = (head > 0).then(|| &digits[..head]).into_iter().chain(groups).collect();
    all.join(" ")
}
