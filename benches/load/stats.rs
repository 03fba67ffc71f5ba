//! Figures with their spread.

use std::{fmt, time::Duration};

/// What one figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Millis,
    Kib,
}

/// A figure measured several times.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) unit: Unit,
    pub(crate) samples: Vec<f64>,
}

impl Figure {
    pub(crate) fn new(unit: Unit) -> Self {
        Self { unit, samples: Vec::new() }
    }

    pub(crate) fn push(&mut self, sample: f64) {
        self.samples.push(sample);
        self.samples.sort_by(f64::total_cmp);
    }

    pub(crate) fn median(&self) -> f64 {
        let (count, samples) = (self.samples.len(), &self.samples);
        match count {
            0 => f64::NAN,
            odd if odd % 2 == 1 => samples[count / 2],
            _ => f64::midpoint(samples[count / 2 - 1], samples[count / 2]),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, low, high) = (
            self.median(),
            self.samples.first().copied().unwrap_or(f64::NAN),
            self.samples.last().copied().unwrap_or(f64::NAN),
        );
        match self.unit {
            Unit::PerSecond => {
                write!(f, "{}/s ({}–{})", thousands(median), thousands(low), thousands(high))
            }
            Unit::Millis => write!(f, "{median:.2} ms ({low:.2}–{high:.2})"),
            Unit::Kib => write!(f, "{median:.1} KiB ({low:.1}–{high:.1})"),
        }
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The sample below which so many of a thousand are; zero for none.
pub(crate) fn percentile(sorted: &[Duration], of_thousand: usize) -> Duration {
    let index = sorted.len().saturating_sub(1) * of_thousand / 1_000;
    sorted.get(index).copied().unwrap_or_default()
}
