//! A small kernel: code at 0xffffffff81000000 with given entries and stacks.

use crate::image::{AddressSpace, Bytes, Image, ImageParts, Mapping, Section, SectionKind, Symbol};
use crate::kernel::perf::{Visit, addresses, callchain};
use crate::kernel::{
    Code, FindCache, Kernel, StackInfo, StackType, State, Task, UnwinderKind, Version,
};
use crate::memory::{Memory, MemoryError};
use crate::orc::{Entry, EntryType, OrcReg};
use crate::reason::Reason;
use crate::regs::{Reg, Regs};
use crate::start::Start;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// The start of the kernel's text.
pub(super) const TEXT: u64 = 0xffff_ffff_8100_0000;
/// The length of the kernel's text, bytes.
pub(super) const TEXT_LEN: u64 = 0x1000;
/// The kernel's entry code.
pub(super) const ENTRY: Range<u64> = TEXT + 0xf00..TEXT + 0xf40;
/// The start of a module's text.
pub(super) const MODULE: u64 = 0xffff_ffff_c000_0000;
/// The task's stack.
pub(super) const TASK: Range<u64> = 0xffff_c900_0000_0000..0xffff_c900_0000_4000;
/// The interrupt stack.
pub(super) const IRQ: Range<u64> = 0xffff_c900_0001_0000..0xffff_c900_0001_4000;
/// The NMI stack.
pub(super) const NMI: Range<u64> = 0xffff_fe00_0000_c000..0xffff_fe00_0000_e000;

/// An entry for calls with the CFA at sp + `offset`.
pub(super) fn call(offset: i16) -> Entry {
    Entry {
        sp_offset: offset,
        ..Entry::NULL
    }
}

/// An entry of another kind with sp + `offset`.
pub(super) fn of_kind(kind: EntryType, offset: i16) -> Entry {
    let sp_reg = match kind {
        EntryType::Undefined | EntryType::EndOfStack => OrcReg::Undefined,
        _ => OrcReg::Sp,
    };
    Entry {
        kind,
        sp_reg,
        sp_offset: offset,
        signal: true,
        ..Entry::UNDEFINED
    }
}

/// The two sections of a table, with `.orc_unwind_ip` at `ips_at`.
pub(super) fn table(entries: &[(u64, Entry)], ips_at: u64, version: Version) -> Vec<Section> {
    let layout = version.encoding().layout;
    let (mut orc, mut ips) = (Vec::new(), Vec::new());
    for (i, (ip, entry)) in entries.iter().enumerate() {
        orc.extend(entry.encode(layout));
        let slot = ips_at + 4 * i as u64;
        ips.extend((ip.wrapping_sub(slot) as i32).to_le_bytes());
    }
    let section = |kind, address, bytes| Section {
        kind,
        address,
        data: Bytes::from_vec(bytes),
    };
    Vec::from([
        section(SectionKind::OrcUnwind, 0, orc),
        section(SectionKind::OrcUnwindIp, ips_at, ips),
    ])
}

/// A kernel whose stacks are to be filled.
pub(super) struct Small {
    pub(super) version: Version,
    /// Entries of the kernel, by offset from [`TEXT`].
    pub(super) entries: Vec<(u64, Entry)>,
    /// Entries of a module, by offset from [`MODULE`].
    pub(super) module: Vec<(u64, Entry)>,
    pub(super) generated: Vec<(Range<u64>, &'static str)>,
    pub(super) task: Task,
    pub(super) words: WordMap,
}

/// Memory, word by word.
#[derive(Default)]
pub(super) struct WordMap(pub(super) BTreeMap<u64, u64>);

impl Memory for WordMap {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let word = self.0.get(&address).copied();
        word.ok_or(MemoryError::Unmapped { address })
    }
    fn read(&self, address: u64, _: &mut [u8]) -> Result<(), MemoryError> {
        Err(MemoryError::Unmapped { address })
    }
}

/// Functions known to the unwinders, by offset from [`TEXT`].
pub(super) const SYMBOLS: [(&str, u64); 10] = [
    ("_stext", 0),
    ("return_to_handler", 0xe00),
    ("arch_rethook_trampoline", 0xe40),
    ("ftrace_caller", 0xc00),
    ("ftrace_regs_caller", 0xc80),
    ("ret_from_fork_asm", 0xd00),
    ("ret_from_fork", 0xd40),
    ("__entry_text_start", 0xf00),
    ("__entry_text_end", 0xf40),
    ("_etext", TEXT_LEN),
];

impl Small {
    pub(super) fn new(version: &str, entries: &[(u64, Entry)]) -> Small {
        let stack = |kind, range: Range<u64>| StackInfo {
            kind,
            begin: range.start,
            end: range.end,
            next_sp: 0,
        };
        let stacks = [
            stack(StackType::Task, TASK),
            stack(StackType::Nmi, NMI),
            stack(StackType::Irq, IRQ),
        ];
        Small {
            version: Version::from_name(version).expect("a version"),
            entries: entries.to_vec(),
            module: Vec::new(),
            generated: Vec::new(),
            task: Task {
                stacks: stacks.to_vec(),
                ..Task::default()
            },
            words: WordMap::default(),
        }
    }

    /// Stores words from `address` upwards.
    pub(super) fn put(&mut self, address: u64, words: &[u64]) -> &mut Small {
        for (i, word) in words.iter().enumerate() {
            self.words.0.insert(address + 8 * i as u64, *word);
        }
        self
    }

    /// Stores a `struct pt_regs` at `address`.
    pub(super) fn put_regs(&mut self, address: u64, regs: &[(Reg, u64)]) -> &mut Small {
        self.put(address, &[0; 21]);
        for (reg, value) in regs {
            let at = address + crate::pt_regs::offset_of(*reg);
            self.words.0.insert(at, *value);
        }
        self
    }

    pub(super) fn code(&self) -> Code {
        Code::new(&self.space(), self.version, Some(self.version.encoding()))
    }

    pub(super) fn space(&self) -> AddressSpace {
        let mut space = AddressSpace::new();

        // Entries are given by their offset in the image.
        let at = |base: u64, entries: &[(u64, Entry)]| -> Vec<(u64, Entry)> {
            entries.iter().map(|(o, e)| (base + o, *e)).collect()
        };
        let symbol = |(name, offset): &(&str, u64)| Symbol {
            address: TEXT + offset,
            size: 0,
            name: name.to_string(),
        };

        let mut map = |base: u64, len: u64, entries: &[(u64, Entry)], symbols: Vec<Symbol>| {
            let image = Image::new(ImageParts {
                text: core::iter::once(base..base + len).collect(),
                sections: table(&at(base, entries), base + 0x10_0000, self.version),
                symbols,
                ..ImageParts::default()
            });
            space.map(Mapping {
                range: base..base + len,
                bias: 0,
                image: Some(Arc::new(image)),
                name: "an image".to_string(),
            });
        };

        // The kernel's own image comes first, with all the symbols that it is known by.
        map(
            TEXT,
            TEXT_LEN,
            &self.entries,
            SYMBOLS.iter().map(symbol).collect(),
        );
        if !self.module.is_empty() {
            map(MODULE, 0x1000, &self.module, Vec::new());
        }

        // Code without a file has only the name of its mapping.
        for (range, name) in &self.generated {
            space.map(Mapping {
                range: range.clone(),
                bias: 0,
                image: None,
                name: name.to_string(),
            });
        }

        space
    }

    /// The addresses of a callchain from `start`, the last state, and why it ended.
    pub(super) fn chain(&self, kind: UnwinderKind, start: &Start) -> (Vec<u64>, State, Reason) {
        let code = self.code();
        let kernel = Kernel {
            code: &code,
            task: &self.task,
            memory: &self.words,
        };

        let mut ips = Vec::new();
        let mut finds = FindCache::default();
        let ended = callchain(
            kind,
            kernel,
            start,
            100,
            &mut finds,
            &mut |visit| match visit {
                Visit::Ip(ip) | Visit::Stored(_, ip) => ips.push(ip),
                Visit::Skipped(_) | Visit::Last(_) => {}
            },
        );

        let (state, reason) = ended.expect("registers are known");

        // Without visits, the same is found: with nothing known, and knowing all of it.
        let mut finds = FindCache::default();
        for _ in 0..2 {
            let mut out = Vec::new();
            let ended = addresses(kind, kernel, start, 100, &mut finds, &mut out);
            assert_eq!(out, ips);
            assert_eq!(ended, Ok((state, reason)));
        }

        (ips, state, reason)
    }

    /// The same, starting from registers in the kernel.
    pub(super) fn walk_from(
        &self,
        kind: UnwinderKind,
        regs: [u64; 3],
    ) -> (Vec<u64>, State, Reason) {
        self.chain(kind, &Start::from_regs(kernel_regs(regs)))
    }
}

/// rip, rsp and rbp of code in the kernel.
pub(super) fn kernel_regs([ip, sp, bp]: [u64; 3]) -> Regs {
    let mut regs = Regs::frame(ip, sp, bp);
    regs.set(Reg::Cs, 0x10);
    regs
}
