//! A point in time as people name it: a time, or how long ago.

use chrono::{DateTime, Utc};

use super::exit::CliError;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Time(DateTime<Utc>),
    Ago(std::time::Duration),
}

pub(super) fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(Moment::Time(time.to_utc()));
    }
    let ago = humantime::parse_duration(text).map(Moment::Ago);
    ago.map_err(|_| "must be a time such as 2026-11-22T00:00:00Z or an age such as 7d".to_owned())
}

impl Moment {
    pub(super) fn time(self, now: DateTime<Utc>) -> anyhow::Result<DateTime<Utc>> {
        let time = match self {
            Self::Time(time) => Some(time),
            Self::Ago(ago) => chrono::TimeDelta::from_std(ago).ok().and_then(|ago| now.checked_sub_signed(ago)),
        };
        Ok(time.ok_or_else(|| CliError::usage("an age is too far in the past"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::timestamp;

    #[test]
    fn a_moment_is_a_time_or_an_age() {
        let now = DateTime::parse_from_rfc3339("2026-11-22T00:00:00Z").unwrap().to_utc();
        let of = |text: &str| timestamp(moment(text).unwrap().time(now).unwrap());
        assert_eq!(of("7d"), "2026-11-15T00:00:00.000000Z");
        assert_eq!(of("2026-11-01T01:00:00+01:00"), "2026-11-01T00:00:00.000000Z");
        for bad in ["", "yesterday", "7", "2026-11-01"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
        assert!(moment("900000years").unwrap().time(now).is_err());
    }
}
