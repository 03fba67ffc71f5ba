//! W3C trace context.

/// Whether a text is a trace id: 32 lower-case hexadecimal digits, not all of them 0.
pub fn is_trace_id(text: &str) -> bool {
    is_hex(text, 32) && text.bytes().any(|digit| digit != b'0')
}

/// The trace id of a `traceparent`; `None` if it is invalid, so that a new trace starts here.
pub fn of_parent(text: &str) -> Option<&str> {
    let mut parts = text.trim().splitn(5, '-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Later versions may add members after these four; version 0 has no others, and 255 is invalid.
    let is_whole = is_hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    let has_span = is_hex(span, 16) && span.bytes().any(|digit| digit != b'0');
    (is_whole && has_span && is_hex(flags, 2) && is_trace_id(trace)).then_some(trace)
}

/// The `traceparent` of calls made for a run of this trace. The run's own span ids have another form, so the parent is
/// the trace id's last 16 digits.
pub fn parent_of(trace_id: &str) -> String {
    let span = trace_id.get(16..).filter(|span| span.bytes().any(|digit| digit != b'0')).unwrap_or("0000000000000001");
    format!("00-{trace_id}-{span}-01")
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_from_a_parent_and_from_nothing_that_is_none() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(of_parent(&format!("00-{trace}-00f067aa0ba902b7-01")), Some(trace));
        assert_eq!(of_parent(&format!("cc-{trace}-00f067aa0ba902b7-01-what-comes")), Some(trace));
        assert_eq!(of_parent(&parent_of(trace)), Some(trace));
        for bad in [
            "",
            trace,
            &format!("00-{trace}-00f067aa0ba902b7"),
            &format!("00-{trace}-00f067aa0ba902b7-01-more"),
            &format!("ff-{trace}-00f067aa0ba902b7-01"),
            &format!("00-{trace}-0000000000000000-01"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            &format!("00-{}-00f067aa0ba902b7-01", &trace[1..]),
        ] {
            assert_eq!(of_parent(bad), None, "{bad}");
        }
    }
}
