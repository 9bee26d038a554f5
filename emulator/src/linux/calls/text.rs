//! The content of the text files in `/proc` and `/sys`.

use crate::address_space::{Access, PAGE_SIZE};
use crate::linux::Kernel;
use crate::linux::clock::SECOND;
use crate::linux::cpuinfo::cpuinfo;
use crate::linux::files::Text;
use crate::linux::identity::Ids;
use std::fmt::Write;

/// Memory size that is reported, bytes.
pub(super) const MEMORY: u64 = 4 << 30;

/// The kernel release and version that are reported.
pub(super) const RELEASE: &str = "6.12.0-unwind-sim";
pub(super) const VERSION: &str = "#1 SMP PREEMPT_DYNAMIC";

impl Kernel {
    pub(super) fn text(&self, text: Text) -> Vec<u8> {
        let list = |all: &[Vec<u8>]| all.iter().flat_map(|t| [&t[..], b"\0"].concat()).collect();
        match text {
            Text::Auxv => self.process.layout.auxv.clone(),
            Text::Cmdline => list(&self.process.args),
            Text::Environ => list(&self.process.env),
            Text::Maps => self.maps(),
            Text::Comm => [&self.process.thread.name[..], b"\n"].concat(),
            _ => self.words(text).into_bytes(),
        }
    }

    fn words(&self, text: Text) -> String {
        let name = String::from_utf8_lossy(&self.process.thread.name);
        let pages = self.machine.core.memory.pages_in_use();
        let ids = |ids: Ids| {
            let Ids {
                real,
                effective,
                saved,
                file,
            } = ids;
            format!("{real}\t{effective}\t{saved}\t{file}")
        };
        let identity = &self.files.own.identity;
        let (uids, gids) = (ids(identity.user), ids(identity.group));
        let mapped: u64 = self
            .machine
            .core
            .memory
            .areas()
            .map(|(r, _)| r.end - r.start)
            .sum();
        let up = self.clock.up() / SECOND;
        let (total, free) = (MEMORY / 1024, MEMORY / 2048);
        let (number, parent) = (self.process.number, self.process.parent);
        let (group, session) = (self.process.group, self.process.session);
        match text {
            Text::Stat => {
                let stack = self.process.layout.stack.end;
                let zeros = " 0".repeat(24);
                format!(
                    "{number} ({name}) R {parent} {group} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 \
                     1000 {mapped} {pages} 18446744073709551615 0 0 {stack}{zeros}\n"
                )
            }
            Text::Statm => format!("{} {pages} 0 0 0 0 0\n", mapped / PAGE_SIZE),
            Text::Status => format!(
                "Name:\t{name}\nUmask:\t{:04o}\nState:\tR (running)\nTgid:\t{number}\nNgid:\t0\n\
                 Pid:\t{number}\nPPid:\t{parent}\nTracerPid:\t0\n\
                 Uid:\t{uids}\nGid:\t{gids}\n\
                 VmSize:\t{} kB\nVmRSS:\t{} kB\nThreads:\t{}\n",
                self.files.own.umask,
                mapped / 1024,
                pages * 4,
                self.threads(),
            ),
            Text::Cpuinfo => cpuinfo(&self.machine.core.processor()),
            Text::Filesystems => "nodev\tproc\n\text4\n".into(),
            Text::Loadavg => format!("0.00 0.00 0.00 1/1 {number}\n"),
            Text::Meminfo => format!(
                "MemTotal: {total:>15} kB\nMemFree: {free:>16} kB\nMemAvailable: {free:>11} kB\n"
            ),
            Text::Mounts => "/dev/root / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n".into(),
            Text::Overcommit => "0\n".into(),
            Text::Release => format!("{RELEASE}\n"),
            Text::Uptime => format!("{up}.00 {up}.00\n"),
            Text::Version => format!("Linux version {RELEASE} {VERSION}\n"),
            Text::Cpus => "0\n".into(),
            Text::Auxv | Text::Cmdline | Text::Comm | Text::Environ | Text::Maps => String::new(),
        }
    }

    /// `/proc/self/maps`; files have no device and no inode number.
    fn maps(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (range, area) in self.machine.core.memory.areas() {
            let may = |access, letter| match area.permissions().allow(access) {
                true => letter,
                false => '-',
            };
            let file = self.process.layout.file_at(range.start);
            let mut line = String::new();
            let (read, write) = (may(Access::Read, 'r'), may(Access::Write, 'w'));
            let execute = may(Access::Execute, 'x');
            let offset = file.as_ref().map_or(0, |file| file.offset);
            // Writing to a string cannot fail.
            let _ = write!(
                line,
                "{:08x}-{:08x} {read}{write}{execute}p {offset:08x} 00:00 0",
                range.start, range.end
            );
            let name: &[u8] = match &file {
                Some(file) => &file.path,
                None if self.process.layout.stack.contains(&range.start) => b"[stack]",
                None if (self.process.layout.heap..self.process.layout.brk)
                    .contains(&range.start) =>
                {
                    b"[heap]"
                }
                None => b"",
            };
            if !name.is_empty() {
                line = format!("{line:<72} ");
            }
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(name);
            out.push(b'\n');
        }
        out
    }
}
