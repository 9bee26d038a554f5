//! The memory of a process as text: `/proc/PID/maps`, `smaps` and `smaps_rollup`.
//!
//! Source: Linux 6.12 `fs/proc/task_mmu.c`.

use crate::address_space::{Access, Area, PAGE_SIZE, Permissions};
use crate::linux::Kernel;
use crate::linux::layout::FileMapping;
use crate::linux::process::Process;
use std::fmt::Write;
use std::ops::Range;

/// What is in use of an area, bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct AreaUsage {
    /// All of it, and its share if others have mapped it, too.
    resident: u64,
    share: u64,
    /// Of the share, what was or may have been written.
    share_dirty: u64,
    /// Of the share: anonymous, of files, of shared memory.
    of_kind: [u64; 3],
    /// Of all: shared clean, shared dirty, private clean, private dirty.
    parts: [u64; 4],
    /// Of all: what no file has.
    anonymous: u64,
}

impl AreaUsage {
    fn add(&mut self, other: &AreaUsage) {
        let add = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        self.resident += other.resident;
        self.share += other.share;
        self.share_dirty += other.share_dirty;
        self.anonymous += other.anonymous;
        add(&mut self.of_kind, &other.of_kind);
        add(&mut self.parts, &other.parts);
    }

    /// The fields that an area and the sum of all have.
    fn write(&self, out: &mut String, is_sum: bool) {
        let mut field = |name: &str, bytes: u64| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<16}{:>8} kB", bytes / 1024);
        };

        // In the order of `__show_smap` (`fs/proc/task_mmu.c`). The parts of Pss are only in
        // `smaps_rollup`.
        field("Rss:", self.resident);
        field("Pss:", self.share);
        field("Pss_Dirty:", self.share_dirty);
        if is_sum {
            field("Pss_Anon:", self.of_kind[0]);
            field("Pss_File:", self.of_kind[1]);
            field("Pss_Shmem:", self.of_kind[2]);
        }

        field("Shared_Clean:", self.parts[0]);
        field("Shared_Dirty:", self.parts[1]);
        field("Private_Clean:", self.parts[2]);
        field("Private_Dirty:", self.parts[3]);
        field("Referenced:", self.resident);
        field("Anonymous:", self.anonymous);

        for none in [
            "KSM:",
            "LazyFree:",
            "AnonHugePages:",
            "ShmemPmdMapped:",
            "FilePmdMapped:",
            "Shared_Hugetlb:",
            "Private_Hugetlb:",
            "Swap:",
            "SwapPss:",
            "Locked:",
        ] {
            field(none, 0);
        }
    }
}

impl Kernel {
    /// `/proc/PID/maps`.
    pub(super) fn maps(&self, process: &Process) -> Vec<u8> {
        let all = self.mappings(process).into_iter();
        all.flat_map(|parts| self.map_line(process, &parts))
            .collect()
    }

    /// `/proc/PID/smaps`.
    pub(super) fn smaps(&self, process: &Process) -> Vec<u8> {
        let mut out = Vec::new();
        for parts in self.mappings(process) {
            out.extend(self.map_line(process, &parts));
            let Range { start, end } = whole(&parts);
            let mut text = format!("{:<16}{:>8} kB\n", "Size:", (end - start) / 1024);
            for name in ["KernelPageSize:", "MMUPageSize:"] {
                let _ = writeln!(text, "{name:<16}{:>8} kB", PAGE_SIZE / 1024);
            }
            let mut sum = AreaUsage::default();
            for (range, area) in &parts {
                sum.add(&self.in_use(process, range, area));
            }
            sum.write(&mut text, false);
            let _ = writeln!(text, "{:<16}{:>8}", "THPeligible:", 0);
            text.push_str("VmFlags: ");
            text.push_str(&self.flags(process, &parts));
            text.push('\n');
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// `/proc/PID/smaps_rollup`: the sum of all areas.
    pub(super) fn smaps_rollup(&self, process: &Process) -> Vec<u8> {
        let (mut sum, mut whole) = (AreaUsage::default(), None::<Range<u64>>);
        for (range, area) in self.machine.core.memory.areas_in(process.space) {
            sum.add(&self.in_use(process, &range, area));
            let start = whole.map_or(range.start, |whole| whole.start);
            whole = Some(start..range.end);
        }

        let Range { start, end } = whole.unwrap_or_default();
        let line = format!("{start:08x}-{end:08x} ---p 00000000 00:00 0");
        let mut text = format!("{line:<72} [rollup]\n");
        sum.write(&mut text, true);
        text.into_bytes()
    }

    /// The bytes of a process that are in use.
    pub(super) fn resident(&self, process: &Process) -> u64 {
        let areas = self.machine.core.memory.areas_in(process.space);
        let resident =
            |(range, area): (Range<u64>, &Area)| self.in_use(process, &range, area).resident;
        areas.map(resident).sum()
    }

    /// The permissions of an area, also of one behind the end of a file.
    fn permissions_of(process: &Process, range: &Range<u64>, area: &Area) -> Permissions {
        let behind = process.layout.behind(range.start);
        behind.unwrap_or(area.permissions())
    }

    /// The mappings of a process, each with the areas of which it consists: the parts of a file before
    /// and behind what was its end are one.
    fn mappings(&self, process: &Process) -> Vec<Vec<(Range<u64>, &Area)>> {
        let layout = &process.layout;
        let mut all: Vec<Vec<(Range<u64>, &Area)>> = Vec::new();
        for (range, area) in self.machine.core.memory.areas_in(process.space) {
            let joins = |(before, last): &(Range<u64>, &Area)| {
                let files = layout
                    .file_at(before.start)
                    .zip(layout.file_at(range.start));

                // Linux has one mapping for a file, whose part past the end faults; here that part
                // is an area without permissions.
                let is_next = files.is_some_and(|(file, next)| {
                    let size = before.end - before.start;
                    file.path == next.path
                        && (file.object, file.memory) == (next.object, next.memory)
                        && file.offset + size == next.offset
                        && is_shared(last, Some(&file)) == is_shared(area, Some(&next))
                });

                let permissions = |range, area| Kernel::permissions_of(process, range, area);
                before.end == range.start
                    && is_next
                    && permissions(before, last) == permissions(&range, area)
            };

            match all.last_mut() {
                Some(parts) if parts.last().is_some_and(joins) => parts.push((range, area)),
                _ => all.push(vec![(range, area)]),
            }
        }
        all
    }

    /// The line of a mapping in `maps`.
    fn map_line(&self, process: &Process, parts: &[(Range<u64>, &Area)]) -> Vec<u8> {
        let layout = &process.layout;
        let (range, area) = (&whole(parts), parts[0].1);

        let permissions = Kernel::permissions_of(process, range, area);

        // The letters of `show_map_vma` (`fs/proc/task_mmu.c`): r, w, x, then s or p.
        let may = |access, letter| {
            if permissions.allow(access) {
                letter
            } else {
                '-'
            }
        };

        let file = layout.file_at(range.start);
        let shared = if is_shared(area, file.as_ref()) {
            's'
        } else {
            'p'
        };
        let (read, write) = (may(Access::Read, 'r'), may(Access::Write, 'w'));
        let execute = may(Access::Execute, 'x');

        let offset = file.as_ref().map_or(0, |file| file.offset);
        let (device, inode) = file.as_ref().map_or((0, 0), |file| {
            file.object.unwrap_or_else(|| self.object_of(&file.path))
        });

        // Twelve bits of the major number, and the lower eight of the minor one.
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff);

        let mut line = format!(
            "{:08x}-{:08x} {read}{write}{execute}{shared} {offset:08x} \
             {major:02x}:{minor:02x} {inode}",
            range.start, range.end
        );

        let name: &[u8] = match &file {
            Some(file) => &file.path,
            // What has no file has a name only for these two.
            None if layout.stack.contains(&range.start) => b"[stack]",
            None if (layout.heap..layout.brk).contains(&range.start) => b"[heap]",
            None => b"",
        };

        // `seq_pad` fills 72 columns, but only in front of a name.
        if !name.is_empty() {
            line = format!("{line:<72} ");
        }
        [line.as_bytes(), name, b"\n"].concat()
    }

    /// What is in use of an area. A page of a writable area counts as written.
    fn in_use(&self, process: &Process, range: &Range<u64>, area: &Area) -> AreaUsage {
        let pages = self
            .machine
            .core
            .memory
            .pages_in(process.space, range, area);
        let (own, shown) = (pages.own as u64 * PAGE_SIZE, pages.shown as u64 * PAGE_SIZE);
        let is_writable = Kernel::permissions_of(process, range, area).allow(Access::Write);
        let file = process.layout.file_at(range.start);
        // A private mapping has a page of its own of a file in memory only once it was written.
        let is_anonymous = file.is_none() || is_writable || area.object().is_some();
        let is_written = is_writable && is_shared(area, file.as_ref());
        let share = shown / pages.mappings.max(1) as u64;

        let mut parts = [0; 4];
        // The order of `smaps`: shared clean, shared dirty, private clean, private dirty.
        parts[if is_anonymous { 3 } else { 2 }] += own;
        // The kernel calls a page shared by the number of its mappings (`smaps_account`).
        let kind = if pages.mappings > 1 { 0 } else { 2 };
        parts[kind + usize::from(is_written)] += shown;

        let mut of_kind = [0; 3];
        of_kind[if is_anonymous { 0 } else { 1 }] += own;
        of_kind[if file.is_some() { 1 } else { 2 }] += share;

        AreaUsage {
            resident: own + shown,
            share: own + share,
            share_dirty: u64::from(is_anonymous) * own + u64::from(is_written) * share,
            of_kind,
            parts,
            anonymous: u64::from(is_anonymous) * own,
        }
    }

    /// The letters of `VmFlags`.
    fn flags(&self, process: &Process, parts: &[(Range<u64>, &Area)]) -> String {
        let (range, area) = (&parts[0].0, parts[0].1);
        let permissions = Kernel::permissions_of(process, range, area);
        let file = process.layout.file_at(range.start);
        let is_shared = is_shared(area, file.as_ref());
        let is_writable = permissions.allow(Access::Write);
        let may_write = !is_shared || file.as_ref().is_none_or(|file| file.is_writable);
        let all = [
            (permissions.allow(Access::Read), "rd "),
            (is_writable, "wr "),
            (permissions.allow(Access::Execute), "ex "),
            (is_shared, "sh "),
            (true, "mr "),
            (may_write, "mw "),
            (true, "me "),
            (is_shared, "ms "),
            (process.layout.stack.contains(&range.start), "gd "),
            (!is_shared && is_writable, "ac "),
        ];
        all.into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, letters)| letters)
            .collect()
    }

    /// Device and inode number of the file at a path.
    fn object_of(&self, path: &[u8]) -> (u64, u64) {
        let found = self.files.find_known(path, false);
        found.map_or((0, 0), |found| {
            let attributes = self.files.attributes(&found);
            (attributes.device, attributes.inode)
        })
    }
}

/// The range of a mapping.
fn whole(parts: &[(Range<u64>, &Area)]) -> Range<u64> {
    let start = parts.first().map_or(0, |(range, _)| range.start);
    start..parts.last().map_or(0, |(range, _)| range.end)
}

/// Whether others see what is written to an area.
fn is_shared(area: &Area, file: Option<&FileMapping>) -> bool {
    area.is_shared() || file.is_some_and(|file| file.is_shared)
}
