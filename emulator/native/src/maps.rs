//! The mappings of a process, as `/proc/PID/maps` lists them (Linux
//! `Documentation/filesystems/proc.rst`).

use std::ops::Range;
use std::path::PathBuf;

/// One mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The addresses.
    pub range: Range<u64>,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared with other processes, or with another mapping of the same file (`MAP_SHARED`).
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Major and minor device number; 0 without a file.
    pub device: (u32, u32),
    /// Inode; 0 without a file.
    pub inode: u64,
    /// Path of the file, or the kernel's name (`[stack]`, `[vdso]`), or empty. Escapes are kept:
    /// the kernel writes a newline as `\012`.
    pub name: String,
    /// The file was deleted.
    pub deleted: bool,
    /// The process.
    pub pid: i32,
}

impl Mapping {
    /// A path at which the file can be opened: through the process' own root, which may differ from
    /// ours.
    pub fn path(&self) -> Option<PathBuf> {
        (self.inode != 0 && self.name.starts_with('/'))
            .then(|| PathBuf::from(format!("/proc/{}/root{}", self.pid, self.name)))
    }

    /// Whether its code was made before it was mapped: it shows a file, or the kernel's own pages.
    pub fn is_of_file(&self) -> bool {
        self.inode != 0 || matches!(&self.name[..], "[vdso]" | "[vsyscall]" | "[uprobes]")
    }

    /// A path at which the mapped inode itself can be opened, even if it was deleted; needs
    /// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
    pub fn map_file(&self) -> Option<PathBuf> {
        let Range { start, end } = self.range;
        (self.inode != 0)
            .then(|| PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", self.pid)))
    }
}

/// All mappings of a process, sorted by address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Maps {
    all: Vec<Mapping>,
}

impl Maps {
    /// Those of a process; none if it has ended.
    pub fn read(pid: i32) -> Maps {
        // A process that is about to end has no mappings left: the file is empty or missing.
        let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        Maps::parse(pid, &String::from_utf8_lossy(&text))
    }

    fn parse(pid: i32, text: &str) -> Maps {
        Maps {
            all: text
                .lines()
                .filter_map(|line| parse_line(pid, line))
                .collect(),
        }
    }

    /// The mapping of an address.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let index = self.all.partition_point(|m| m.range.end <= address);
        self.all.get(index).filter(|m| m.range.contains(&address))
    }

    /// All mappings, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.all.iter()
    }

    /// The mappings of `self` that are not in `other`.
    pub fn without<'a>(&'a self, other: &'a Maps) -> impl Iterator<Item = &'a Mapping> {
        self.all
            .iter()
            .filter(|m| other.find(m.range.start) != Some(*m))
    }

    /// The same mappings as those of another process, such as a child that was just forked.
    pub fn for_process(&self, pid: i32) -> Maps {
        let mut copy = self.clone();
        for mapping in &mut copy.all {
            mapping.pid = pid;
        }
        copy
    }
}

fn parse_line(pid: i32, line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        word
    };

    let hex = |text: &str| u64::from_str_radix(text, 16).ok();

    // proc(5): address, permissions, offset, device, inode, and a name that may contain spaces.
    let (start, end) = field().split_once('-')?;
    let flags = field().as_bytes();
    let offset = hex(field())?;
    let (major, minor) = field().split_once(':')?;
    let inode = field().parse().ok()?;

    let name = rest.trim_start();

    // The kernel marks a file without a name so; a file may really be called that, and then is
    // misread.
    let live_name = name.strip_suffix(" (deleted)");

    Some(Mapping {
        range: hex(start)?..hex(end)?,
        write: flags.get(1) == Some(&b'w'),
        execute: flags.get(2) == Some(&b'x'),
        shared: flags.get(3) == Some(&b's'),
        offset,
        device: (
            u32::try_from(hex(major)?).ok()?,
            u32::try_from(hex(minor)?).ok()?,
        ),
        inode,
        name: live_name.unwrap_or(name).to_owned(),
        deleted: live_name.is_some(),
        pid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_all_its_fields() {
        let text = "7f0000001000-7f0000003000 r-xp 0002a000 fe:01 1234   /a b/c (deleted)\n\
                    7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0      [stack]\n\
                    7ffc00030000-7ffc00031000 rw-s 00000000 00:01 7\n\
                    nonsense\n";
        let maps = Maps::parse(1, text);
        let file = maps.find(0x7f00_0000_1000).unwrap();
        assert_eq!(file.name, "/a b/c");
        assert!(file.deleted && file.execute && !file.write && !file.shared);
        assert_eq!(
            (file.offset, file.device, file.inode),
            (0x2a000, (0xfe, 1), 1234)
        );
        assert_eq!(file.path(), Some(PathBuf::from("/proc/1/root/a b/c")));
        let stack = maps.find(0x7ffc_0002_0fff).unwrap();
        assert_eq!(stack.name, "[stack]");
        assert_eq!(stack.path(), None);
        assert!(maps.find(0x7ffc_0003_0000).unwrap().shared);
        assert!(maps.find(0x7f00_0000_3000).is_none());
        assert_eq!(maps.all.len(), 3);
    }

    #[test]
    fn code_that_is_made_while_the_program_runs_is_of_no_file() {
        let text = "1000-2000 r-xp 00000000 fe:01 7 /lib/x.so\n\
                    2000-3000 r-xp 00000000 fe:01 7 /lib/x.so (deleted)\n\
                    3000-4000 r-xp 00000000 00:00 0 [vdso]\n\
                    4000-5000 rwxp 00000000 00:00 0 \n\
                    5000-6000 rwxp 00000000 00:00 0 [anon:jit]\n\
                    6000-7000 rwxp 00000000 00:00 0 [heap]\n\
                    7000-8000 r-xs 00000000 00:01 9 /memfd:code (deleted)\n";
        let maps = Maps::parse(1, text);
        let of_file = (1..8).map(|i| maps.find(i << 12).unwrap().is_of_file());
        let of_file: Vec<bool> = of_file.collect();
        assert_eq!(of_file, [true, true, true, false, false, false, true]);
    }

    #[test]
    fn a_difference_is_what_changed() {
        let old = Maps::parse(1, "1000-2000 r-xp 0 00:00 0 \n3000-4000 r-xp 0 00:00 0 \n");
        let new = Maps::parse(1, "1000-2000 r-xp 0 00:00 0 \n3000-5000 r-xp 0 00:00 0 \n");
        let mut added = new.without(&old).map(|m| m.range.clone());
        assert_eq!(added.next(), Some(0x3000..0x5000));
        assert_eq!(added.next(), None);
    }
}
