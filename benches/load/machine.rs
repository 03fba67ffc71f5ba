//! The machine, and who used its processors while something was measured.

use std::{fmt, fs, process::Command, time::Instant};

/// What the machine is, for the head of the table.
pub(crate) fn facts() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{} × {}, {} GiB, Linux {}, load {}",
        cores,
        model.trim_start_matches([' ', '\t', ':']),
        memory.unwrap_or_default() / (1 << 20),
        kernel.trim(),
        load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
    )
}

/// Ticks of the processors, of us and of the server's processes.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    busy: u64,
    generator: u64,
    server: u64,
    postgres: u64,
}

/// Watches who uses the processors.
#[derive(Debug)]
pub(crate) struct Meter {
    server: Option<u32>,
    postmaster: Option<u32>,
    before: Ticks,
    began: Instant,
}

/// Processors in use on average, one number per party.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    pub(crate) generator: f64,
    pub(crate) server: f64,
    pub(crate) postgres: f64,
    pub(crate) foreign: f64,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generator, server, postgres, foreign } = self;
        write!(f, "{generator:.2} / {server:.2} / {postgres:.2} / {foreign:.2}")
    }
}

impl Meter {
    pub(crate) fn start(server: Option<u32>, postmaster: Option<u32>) -> Self {
        let mut meter = Self { server, postmaster, before: Ticks::default(), began: Instant::now() };
        meter.before = meter.ticks();
        meter
    }

    pub(crate) fn stop(&self) -> Use {
        let (before, now) = (self.before, self.ticks());
        // The kernel counts in hundredths of a second.
        let span = self.began.elapsed().as_secs_f64() * 100.0;
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / span;
        let mut used = Use {
            generator: share(now.generator, before.generator),
            server: share(now.server, before.server),
            postgres: share(now.postgres, before.postgres),
            foreign: 0.0,
        };
        let ours = used.generator + used.server + used.postgres;
        used.foreign = (share(now.busy, before.busy) - ours).max(0.0);
        used
    }

    fn ticks(&self) -> Ticks {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<u64> =
            stat.lines().next().unwrap_or_default().split_whitespace().skip(1).flat_map(str::parse).collect();
        // user nice system idle iowait irq softirq steal
        let busy = fields.iter().enumerate().filter(|(index, _)| !matches!(index, 3 | 4 | 8..)).map(|(_, ticks)| ticks);
        Ticks {
            busy: busy.sum(),
            generator: ticks_of(std::process::id()),
            server: self.server.map_or(0, ticks_of),
            // A backend that has ended is counted by the postmaster that reaped it.
            postgres: self.postmaster.map_or(0, |postmaster| {
                children(postmaster).into_iter().map(ticks_of).sum::<u64>() + ticks(postmaster, 4)
            }),
        }
    }
}

/// User and system time of a process.
fn ticks_of(pid: u32) -> u64 {
    ticks(pid, 2)
}

/// The first two are the time of the process itself, the next two that of its children that have ended.
fn ticks(pid: u32, fields_wanted: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().skip(11).take(fields_wanted).flat_map(str::parse::<u64>).sum()
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Resident memory of a process, KiB.
pub(crate) fn resident_kib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|figure| figure.parse().ok()).unwrap_or_default()
}

/// Binds every thread of a process to these processors; without `taskset` nothing is bound.
pub(crate) fn pin(pid: u32, processors: &str) {
    let _ = Command::new("taskset").args(["-a", "-p", "-c", processors, &pid.to_string()]).output();
}
