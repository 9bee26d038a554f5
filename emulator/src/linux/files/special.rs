//! Files that the kernel makes up: `/dev`, `/proc`, `/sys`. Those of the host are never seen, or
//! a run would depend on the machine that it is made on.
//!
//! What is in a text is the process' business (`calls::text`).

use super::description::Kind;
use super::{Files, join};
use crate::linux::PID;

/// What is made up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Special {
    /// Names and types.
    Directory(Vec<(Vec<u8>, u8)>),
    Link(Vec<u8>),
    Text(Text),
    Device(Device),
}

/// Devices in `/dev`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Device {
    Null,
    Zero,
    Full,
    Random,
    /// The terminal of the process, which has none.
    Terminal,
}

impl Device {
    /// Major and minor.
    pub(super) fn numbers(self) -> (u64, u64) {
        match self {
            Device::Null => (1, 3),
            Device::Zero => (1, 5),
            Device::Full => (1, 7),
            Device::Random => (1, 9),
            Device::Terminal => (5, 0),
        }
    }
}

/// Texts in `/proc` and `/sys`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Text {
    Auxv,
    Cmdline,
    Comm,
    Environ,
    Maps,
    Stat,
    Statm,
    Status,
    Cpuinfo,
    Filesystems,
    Loadavg,
    Meminfo,
    Mounts,
    Overcommit,
    Release,
    Uptime,
    Version,
    Cpus,
}

enum Made {
    Text(Text),
    Device(Device),
    Link(&'static str),
    Program,
    WorkingDirectory,
    Descriptors,
}

/// Everything, by path; directories are what leads there. Below `/proc/PID` without that.
const PROCESS: [(&str, Made); 13] = [
    ("auxv", Made::Text(Text::Auxv)),
    ("cmdline", Made::Text(Text::Cmdline)),
    ("comm", Made::Text(Text::Comm)),
    ("cwd", Made::WorkingDirectory),
    ("environ", Made::Text(Text::Environ)),
    ("exe", Made::Program),
    ("fd", Made::Descriptors),
    ("maps", Made::Text(Text::Maps)),
    ("mounts", Made::Text(Text::Mounts)),
    ("root", Made::Link("/")),
    ("stat", Made::Text(Text::Stat)),
    ("statm", Made::Text(Text::Statm)),
    ("status", Made::Text(Text::Status)),
];

const SYSTEM: [(&str, Made); 23] = [
    ("/dev/fd", Made::Link("/proc/self/fd")),
    ("/dev/full", Made::Device(Device::Full)),
    ("/dev/null", Made::Device(Device::Null)),
    ("/dev/random", Made::Device(Device::Random)),
    ("/dev/stderr", Made::Link("/proc/self/fd/2")),
    ("/dev/stdin", Made::Link("/proc/self/fd/0")),
    ("/dev/stdout", Made::Link("/proc/self/fd/1")),
    ("/dev/tty", Made::Device(Device::Terminal)),
    ("/dev/urandom", Made::Device(Device::Random)),
    ("/dev/zero", Made::Device(Device::Zero)),
    ("/proc/cpuinfo", Made::Text(Text::Cpuinfo)),
    ("/proc/filesystems", Made::Text(Text::Filesystems)),
    ("/proc/loadavg", Made::Text(Text::Loadavg)),
    ("/proc/meminfo", Made::Text(Text::Meminfo)),
    ("/proc/mounts", Made::Link("self/mounts")),
    ("/proc/sys/kernel/osrelease", Made::Text(Text::Release)),
    (
        "/proc/sys/vm/overcommit_memory",
        Made::Text(Text::Overcommit),
    ),
    ("/proc/thread-self", Made::Link("self")),
    ("/proc/uptime", Made::Text(Text::Uptime)),
    ("/proc/version", Made::Text(Text::Version)),
    ("/sys/devices/system/cpu/online", Made::Text(Text::Cpus)),
    ("/sys/devices/system/cpu/possible", Made::Text(Text::Cpus)),
    ("/sys/devices/system/cpu/present", Made::Text(Text::Cpus)),
];

/// Does every Linux have something at a path of `/proc` that is not made up here?
pub(in crate::linux) fn is_not_modelled(path: &[u8]) -> bool {
    /// What each process has, whatever the kernel was built with.
    const PROCESS: [&str; 21] = [
        "attr",
        "coredump_filter",
        "fdinfo",
        "limits",
        "loginuid",
        "map_files",
        "mem",
        "mountinfo",
        "mountstats",
        "net",
        "ns",
        "oom_adj",
        "oom_score",
        "oom_score_adj",
        "pagemap",
        "personality",
        "sched",
        "smaps",
        "syscall",
        "task",
        "wchan",
    ];
    const SYSTEM: [&str; 16] = [
        "buddyinfo",
        "cmdline",
        "consoles",
        "crypto",
        "devices",
        "diskstats",
        "interrupts",
        "iomem",
        "kallsyms",
        "locks",
        "misc",
        "partitions",
        "slabinfo",
        "softirqs",
        "stat",
        "vmstat",
    ];
    let own = format!("/proc/{PID}/");
    let first = |rest: &[u8]| {
        let name = rest.split(|&b| b == b'/').next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    if let Some(rest) = path.strip_prefix(own.as_bytes()) {
        return PROCESS.contains(&&first(rest)[..]);
    }
    let rest = path.strip_prefix(b"/proc/");
    rest.is_some_and(|rest| SYSTEM.contains(&&first(rest)[..]))
}

/// Is a path the kernel's?
pub(super) fn is_special(path: &[u8]) -> bool {
    let starts = |tree: &[u8]| {
        let rest = path.strip_prefix(tree);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    starts(b"/dev") || starts(b"/proc") || starts(b"/sys")
}

/// What is at a path that is the kernel's.
pub(super) fn find(files: &Files, path: &[u8]) -> Option<Special> {
    let own = format!("/proc/{PID}");
    if path == b"/proc/self" {
        return Some(Special::Link(PID.to_string().into_bytes()));
    }
    let in_own = path.strip_prefix(own.as_bytes());
    let in_own = in_own.filter(|rest| rest.is_empty() || rest[0] == b'/');
    if let Some(name) = in_own.and_then(|rest| rest.strip_prefix(b"/fd/")) {
        return descriptor(files, name);
    }
    match in_own {
        Some(rest) => among(files, &PROCESS, rest.strip_prefix(b"/").unwrap_or(rest)),
        None => among(files, &SYSTEM, path),
    }
}

fn among(files: &Files, all: &[(&str, Made)], path: &[u8]) -> Option<Special> {
    if let Some((_, made)) = all.iter().find(|(p, _)| p.as_bytes() == path) {
        return Some(match made {
            Made::Text(text) => Special::Text(*text),
            Made::Device(device) => Special::Device(*device),
            Made::Link(target) => Special::Link(target.as_bytes().to_vec()),
            Made::Program => Special::Link(files.program.clone()),
            Made::WorkingDirectory => Special::Link(files.cwd.clone()),
            Made::Descriptors => {
                let open = files.table.open();
                let names = open.map(|(fd, _)| (fd.to_string().into_bytes(), LINK));
                Special::Directory(names.collect())
            }
        });
    }
    let prefix = match path {
        b"" => Vec::new(),
        path => join(path, b""),
    };
    let mut inside: Vec<(Vec<u8>, u8)> = Vec::new();
    for (path, made) in all {
        let Some(rest) = path.as_bytes().strip_prefix(&prefix[..]) else {
            continue;
        };
        let (name, kind) = match rest.iter().position(|&b| b == b'/') {
            Some(slash) => (&rest[..slash], DIRECTORY),
            None => (rest, made.kind()),
        };
        if inside.last().is_none_or(|(last, _)| last != name) {
            inside.push((name.to_vec(), kind));
        }
    }
    if path == b"/proc" {
        inside.push((PID.to_string().into_bytes(), DIRECTORY));
        inside.push((b"self".to_vec(), LINK));
    }
    (!inside.is_empty()).then_some(Special::Directory(inside))
}

const DIRECTORY: u8 = 4;
const LINK: u8 = 10;

impl Made {
    fn kind(&self) -> u8 {
        match self {
            Made::Text(_) => 8,
            Made::Device(_) => 2,
            Made::Link(_) | Made::Program | Made::WorkingDirectory => LINK,
            Made::Descriptors => DIRECTORY,
        }
    }
}

/// `/proc/self/fd/N`.
fn descriptor(files: &Files, name: &[u8]) -> Option<Special> {
    let fd: u64 = std::str::from_utf8(name).ok()?.parse().ok()?;
    let open = files.table.get_named(fd).ok()?;
    let open = open.borrow();
    Some(Special::Link(match &open.kind {
        Kind::PipeReader(_) | Kind::PipeWriter(_) | Kind::Stdin | Kind::Stdout | Kind::Stderr => {
            format!("pipe:[{fd}]").into_bytes()
        }
        Kind::Event { .. } => b"anon_inode:[eventfd]".to_vec(),
        _ => open.path.clone(),
    }))
}

/// The descriptor that a path means: opening it duplicates that.
pub(super) fn of_descriptor(path: &[u8]) -> Option<u64> {
    match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let own = format!("/proc/{PID}/fd/").into_bytes();
    let roots: [&[u8]; 3] = [b"/proc/self/fd/", b"/dev/fd/", &own];
    let name = roots.iter().find_map(|root| path.strip_prefix(*root))?;
    std::str::from_utf8(name).ok()?.parse().ok()
}
