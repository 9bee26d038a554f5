//! The content of the text files in `/proc` and `/sys` that describe the system. Those of processes
//! are in `proc`.

use crate::linux::Kernel;
use crate::linux::clock::SECOND;
use crate::linux::cpuinfo::cpuinfo;
use crate::linux::files::{RELEASE, Text};
use crate::linux::task::Task;
use crate::random::Random;

/// Memory size that is reported, bytes.
pub(super) use crate::linux::MEMORY;

/// The kernel version that is reported.
pub(super) const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC";
/// Nanoseconds of a clock tick (`USER_HZ`).
pub(super) const TICK: u64 = SECOND / 100;

impl Kernel {
    /// The content of `/proc/sys/kernel/random/uuid`.
    pub(super) fn new_uuid(&mut self) -> Vec<u8> {
        uuid(&mut self.files.random).into_bytes()
    }

    /// The content of a text, about a thread if it is not about the system.
    pub(super) fn text(&self, text: Text, task: Task) -> Vec<u8> {
        let up = self.clock.up();
        let used = self.clock.real() - self.clock.slept();
        let seconds = |time: u64| format!("{}.{:02}", time / SECOND, time % SECOND / TICK);

        let words = match text {
            Text::Fixed(text) => text.to_owned(),
            Text::BootId => uuid(&mut Random::new(!self.machine.core.seed)),
            Text::Cpuinfo => cpuinfo(&self.machine.core.processor()),
            Text::Filesystems => "nodev\tproc\nnodev\ttmpfs\n\text4\n".into(),
            // Three averages, running and all threads, the last number (proc(5)).
            Text::Loadavg => {
                let all: usize = self.all_processes().map(|p| p.others.len() + 1).sum();
                let last = self.system.next_number - 1;
                format!("0.00 0.00 0.00 1/{all} {last}\n")
            }
            Text::Locks => self.system.locks.text(),
            Text::Meminfo => meminfo(self.machine.core.memory.pages_in_use() as u64 * 4),
            Text::SystemStat => {
                // When the machine was started.
                let begun = self.clock.time().seconds - (up / SECOND).cast_signed();
                let (busy, idle) = (used / TICK, (up - used) / TICK);
                let created = self.system.next_number;
                format!(
                    "cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 {busy} 0 0 {idle} 0 0 0 0 0 0\n\
                     intr 0\nctxt 0\nbtime {begun}\nprocesses {created}\nprocs_running 1\n\
                     procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n"
                )
            }
            Text::Uptime => format!("{} {}\n", seconds(up), seconds(up - used)),
            Text::Version => format!("Linux version {RELEASE} {VERSION}\n"),
            _ => return self.process_text(text, task),
        };
        words.into_bytes()
    }
}

/// A random UUID, of version 4 (RFC 9562, section 5.4).
fn uuid(random: &mut Random) -> String {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;

    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text + "\n"
}

/// `/proc/meminfo`, with `used` KiB in use (`fs/proc/meminfo.c`).
fn meminfo(used: u64) -> String {
    let total = MEMORY / 1024;
    let free = total.saturating_sub(used);
    let rows = [
        ("MemTotal:", total),
        ("MemFree:", free),
        ("MemAvailable:", free),
        ("Buffers:", 0),
        ("Cached:", 0),
        ("SwapCached:", 0),
        ("Active:", used),
        ("Inactive:", 0),
        ("SwapTotal:", 0),
        ("SwapFree:", 0),
        ("Dirty:", 0),
        ("Writeback:", 0),
        ("AnonPages:", used),
        ("Mapped:", 0),
        ("Shmem:", 0),
        ("Slab:", 0),
        ("SReclaimable:", 0),
        ("SUnreclaim:", 0),
        // Half of the memory, by the default `overcommit_ratio`, without swap.
        ("CommitLimit:", total / 2),
        ("Committed_AS:", used),
        ("HugePages_Total:", 0),
        ("HugePages_Free:", 0),
    ];

    // Huge pages are counted, all else is in kB.
    let row = |(name, value): (&str, u64)| {
        if name.starts_with("Huge") {
            format!("{name:<16}{value:>8}\n")
        } else {
            format!("{name:<16}{value:>8} kB\n")
        }
    };
    rows.into_iter().map(row).collect()
}
