//! Differences between kernel versions, with their commits.

use crate::orc::Encoding;
use crate::start::FakeVariant;
use core::fmt;

/// A kernel version, as far as it matters to its unwinders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    major: u32,
    minor: u32,
    encoding: Encoding,
    keeps_frame_at_mark: bool,
}

/// How `ftrace_graph_ret_addr` searches the function graph tracer's shadow stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraphSearch {
    /// All entries, oldest first, for the one with this slot.
    Oldest,
    /// From the last one found down to the oldest, past entries of tail calls. Since 6.10, when the
    /// tracer got support for several users.
    Newest,
}

impl Version {
    /// The versions offered on the command line, oldest first. Each is the first one with some
    /// difference.
    pub const NAMES: [&'static str; 8] =
        ["4.14", "5.2", "5.12", "6.1", "6.3", "6.4", "6.12", "7.1"];

    /// The default kernel: the behaviour of current kernels, with the most common layout.
    pub const DEFAULT: Version = Version {
        major: 6,
        minor: 12,
        encoding: Encoding::since_5_12(crate::orc::Layout::V6_4),
        keeps_frame_at_mark: false,
    };

    /// Parses a kernel version such as `6.1`, `6.1.0-50-cloud-amd64`, `5.14.0-570.el9`. `None` if
    /// it is not a version, or older than ORC (4.14).
    pub fn from_name(name: &str) -> Option<Version> {
        let encoding = Encoding::from_kernel_version(name)?;

        // A distribution's release (`5.10.0-34-amd64`) does not show which stable release it
        // follows.
        let (release, is_distribution) = match name.split_once(['-', '+']) {
            Some((release, _)) => (release, true),
            None => (name, false),
        };

        let mut parts = release.split('.').map(|part| part.parse::<u32>().ok());
        let mut number = || parts.next().flatten();
        let (major, minor) = (number()?, number()?);

        // The stable release that took the change back: 0 where no release keeps the frame, and
        // none where all do.
        let reverted = match (major, minor) {
            (5, 10) => Some(153),
            (5, 15) => Some(77),
            (6, 0) => Some(7),
            (5, 7..) => None,
            _ => Some(0),
        };

        // A name without a third number is the first release of its series.
        let patch = number().unwrap_or(0);
        let keeps_frame_at_mark = !is_distribution && reverted.is_none_or(|fixed| patch < fixed);

        Some(Version {
            major,
            minor,
            encoding,
            keeps_frame_at_mark,
        })
    }

    /// How perf starts the unwinder from fake registers. Changed in 5.2 (commit d15d356887e7).
    /// [`FakeVariant::AlwaysIp`] is not tied to a version, because stable releases of the same
    /// number differ.
    pub const fn fake_start(self) -> FakeVariant {
        if self.since(5, 2) {
            FakeVariant::V5_2
        } else {
            FakeVariant::V5_1
        }
    }

    /// How the kernel reads its ORC entries.
    pub const fn encoding(self) -> Encoding {
        self.encoding
    }

    /// The same version with another encoding of ORC entries.
    #[must_use]
    pub const fn with_encoding(self, encoding: Encoding) -> Version {
        Version { encoding, ..self }
    }

    const fn since(self, major: u32, minor: u32) -> bool {
        self.major > major || self.major == major && self.minor >= minor
    }

    /// Whether callchains have the return addresses that return probes took, instead of the
    /// trampoline's. Since 6.11 (commit 4a365eb8a6d9).
    pub const fn puts_back_uretprobes(self) -> bool {
        self.since(6, 11)
    }

    /// Whether a walk ends with an error where nothing is known, and without one only at a root.
    /// Since 4.18 ("x86/unwind/orc: Detect the end of the stack"); before, all ends were alike.
    pub const fn tells_end_from_error(self) -> bool {
        self.since(4, 18)
    }

    /// Whether code without ORC entries is assumed to have a frame pointer, with an error. Since
    /// 5.2 (commit ae6a45a08689); before, the walk ended there.
    pub const fn falls_back_to_frame_pointer(self) -> bool {
        self.since(5, 2)
    }

    /// Whether registers missing from an iret frame are taken from the previous frame. Since 5.7
    /// (commit 81b67439d147).
    pub const fn has_prev_regs(self) -> bool {
        self.since(5, 7)
    }

    /// Whether an inactive task's sp is that of the frame after `struct inactive_task_frame`. Since
    /// 5.8, after commit 187b96db5ca7; before, it was that of the struct itself.
    pub const fn skips_inactive_task_frame(self) -> bool {
        self.since(5, 8)
    }

    /// Whether a walk from the unwinder's own registers keeps the frame whose sp is the mark. From
    /// 5.7 (commit f1d9a2abff66) until 6.1 (commit 230db82413c0, also in 5.10.153, 5.15.77 and
    /// 6.0.7); before and after, that frame is skipped. A distribution's release is assumed to have
    /// the later commit.
    pub const fn keeps_frame_at_mark(self) -> bool {
        self.keeps_frame_at_mark
    }

    /// The end of the interrupt stack, from `hardirq_stack_ptr`. Since 5.12 (commit 951c2a51ae75),
    /// that points to the stack's last word; before, it pointed to the end.
    pub const fn irq_stack_end(self, hardirq_stack_ptr: u64) -> u64 {
        if self.since(5, 12) {
            hardirq_stack_ptr.wrapping_add(8)
        } else {
            hardirq_stack_ptr
        }
    }

    /// Whether an address in an ftrace trampoline is looked up at the same offset in the code that
    /// it is a copy of. Since 5.10; before, the whole trampoline was looked up at one fixed address
    /// in that code.
    pub const fn maps_ftrace_trampolines(self) -> bool {
        self.since(5, 10)
    }

    /// Whether the entry states that the frame was interrupted. Since 6.3 (commit ffb1b4a41016);
    /// before, its type did, and only after the frame was read.
    pub const fn takes_signal_from_entry(self) -> bool {
        self.since(6, 3)
    }

    /// Whether a new task's code starts at `ret_from_fork_asm`. Since 6.6 (commit 3aec4ecb3d1f);
    /// before, it was `ret_from_fork`.
    pub const fn has_ret_from_fork_asm(self) -> bool {
        self.since(6, 6)
    }

    /// How the function graph tracer's shadow stack is searched.
    pub const fn graph_search(self) -> GraphSearch {
        if self.since(6, 10) {
            GraphSearch::Newest
        } else {
            GraphSearch::Oldest
        }
    }

    /// Whether return addresses replaced by kretprobes are recovered (`rethook`, before 5.18
    /// `kretprobe_find_ret_addr`). Since 5.16 (commit 19138af1bd88).
    pub const fn recovers_kretprobes(self) -> bool {
        self.since(5, 16)
    }

    /// Whether a printed trace also announces the task's own stack (`<TASK>`). The kernels up to 5.10 do not,
    /// and those from 6.1 on do; taken to be since 5.16.
    pub const fn names_task_stack(self) -> bool {
        self.since(5, 16)
    }

    /// Whether BPF programs are known to have a frame pointer, which makes a walk through one
    /// reliable. Since 7.0 (commit 01bc3b6db18d).
    pub const fn knows_bpf_frame_pointers(self) -> bool {
        self.since(7, 0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
