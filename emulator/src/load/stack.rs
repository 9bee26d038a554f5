//! The initial stack: argc, argv, envp, the auxiliary vector, and the strings they point to.
//!
//! Source: Linux 6.12 `fs/exec.c` (`copy_strings`), `fs/binfmt_elf.c` (`create_elf_tables`).

use super::LoadOptions;
use super::elf::{Executable, PROGRAM_HEADER};
use super::error::{ElfFile, LoadError, LoadErrorKind};
use crate::address_space::{AddressSpace, PAGE_SIZE};
use std::ops::Range;

/// Types of auxiliary vector entries (Linux `include/uapi/linux/auxvec.h`).
#[allow(missing_docs, reason = "the names are those of the kernel's header")]
pub mod auxv {
    pub const AT_NULL: u64 = 0;
    pub const AT_PHDR: u64 = 3;
    pub const AT_PHENT: u64 = 4;
    pub const AT_PHNUM: u64 = 5;
    pub const AT_PAGESZ: u64 = 6;
    pub const AT_BASE: u64 = 7;
    pub const AT_FLAGS: u64 = 8;
    pub const AT_ENTRY: u64 = 9;
    pub const AT_UID: u64 = 11;
    pub const AT_EUID: u64 = 12;
    pub const AT_GID: u64 = 13;
    pub const AT_EGID: u64 = 14;
    pub const AT_PLATFORM: u64 = 15;
    pub const AT_HWCAP: u64 = 16;
    pub const AT_CLKTCK: u64 = 17;
    pub const AT_SECURE: u64 = 23;
    pub const AT_RANDOM: u64 = 25;
    pub const AT_HWCAP2: u64 = 26;
    pub const AT_EXECFN: u64 = 31;
    pub const AT_MINSIGSTKSZ: u64 = 51;
}
use auxv::*;

/// An entry of the auxiliary vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AuxvEntry {
    /// Its type ([`auxv`]).
    pub kind: u64,
    /// Its value.
    pub value: u64,
}

/// The entries in the kernel's order. Those that point to strings are filled in later.
pub(super) fn vector(
    main: &Executable,
    bias: u64,
    interpreter_bias: Option<u64>,
    options: &LoadOptions,
) -> Vec<AuxvEntry> {
    let (uid, gid) = (options.uid.into(), options.gid.into());
    [
        (AT_MINSIGSTKSZ, options.signal_stack),
        (AT_HWCAP, options.hwcap),
        (AT_PAGESZ, PAGE_SIZE),
        // USER_HZ, which is 100 on every x86 kernel.
        (AT_CLKTCK, 100),
        (AT_PHDR, main.headers_at.wrapping_add(bias)),
        (AT_PHENT, PROGRAM_HEADER),
        (AT_PHNUM, main.header_count),
        (AT_BASE, interpreter_bias.unwrap_or(0)),
        (AT_FLAGS, 0),
        (AT_ENTRY, main.entry.wrapping_add(bias)),
        (AT_UID, uid),
        (AT_EUID, uid),
        (AT_GID, gid),
        (AT_EGID, gid),
        // No program runs with more rights than its caller.
        (AT_SECURE, 0),
        // Addresses of bytes on the stack, known once it is laid out.
        (AT_RANDOM, 0),
        (AT_HWCAP2, options.hwcap2),
        (AT_EXECFN, 0),
        (AT_PLATFORM, 0),
        (AT_NULL, 0),
    ]
    .map(|(kind, value)| AuxvEntry { kind, value })
    .to_vec()
}

/// Writes the stack; returns rsp and the finished vector.
pub(super) fn write(
    space: &mut AddressSpace,
    stack: &Range<u64>,
    args: &[&[u8]],
    env: &[&[u8]],
    mut vector: Vec<AuxvEntry>,
    options: &LoadOptions,
) -> Result<(u64, Vec<AuxvEntry>), LoadError> {
    let error = |what| LoadError {
        which: ElfFile::Program,
        what,
        section: "stack",
        offset: 0,
    };

    // Linux limits strings and pointers to a quarter of the stack's size, but not to less than
    // `ARG_MAX`.
    const ARGUMENTS_MIN: u64 = 128 << 10;

    let texts = args.iter().chain(env);
    let strings: u64 = texts.map(|text| text.len() as u64 + 1 + 8).sum();
    let strings = strings.saturating_add(options.path.len() as u64);
    if strings > ((stack.end - stack.start) / 4).max(ARGUMENTS_MIN) {
        return Err(error(LoadErrorKind::Arguments(strings)));
    }

    let mut push = |at: &mut u64, bytes: &[u8]| {
        *at -= bytes.len() as u64;
        space
            .poke(*at, bytes)
            .map_err(|fault| error(LoadErrorKind::Fault(fault)))
    };

    // As in fs/exec.c: a null pointer at the top, below it the path, the environment, the
    // arguments.
    let mut at = stack.end - 8;
    let mut string = |at: &mut u64, text: &[u8]| {
        push(at, b"\0")?;
        push(at, text)?;
        Ok(*at)
    };
    let path = string(&mut at, &options.path)?;

    // The last string is at the highest address, so that argv[0] comes first in memory.
    let mut pointers = |at: &mut u64, texts: &[&[u8]]| {
        let written = texts.iter().rev().map(|text| string(at, text));
        let mut written = written.collect::<Result<Vec<u64>, LoadError>>()?;
        written.reverse();
        Ok(written)
    };

    let envp = pointers(&mut at, env)?;
    let argv = pointers(&mut at, args)?;

    // From here on as `create_elf_tables` (fs/binfmt_elf.c).
    at &= !15;
    let platform = string(&mut at, b"x86_64")?;
    push(&mut at, &options.random)?;
    let random = at;

    for entry in &mut vector {
        match entry.kind {
            AT_RANDOM => entry.value = random,
            AT_EXECFN => entry.value = path,
            AT_PLATFORM => entry.value = platform,
            _ => {}
        }
    }

    // argc, argv, a null pointer, envp, a null pointer, the vector.
    let mut words = vec![argv.len() as u64];
    words.extend(argv);
    words.push(0);
    words.extend(envp);
    words.push(0);
    words.extend(vector.iter().flat_map(|entry| [entry.kind, entry.value]));

    // rsp is aligned to 16 bytes at the first instruction (psABI, 3.4.1).
    let rsp = (at - 8 * words.len() as u64) & !15;

    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    space
        .poke(rsp, &bytes)
        .map_err(|fault| error(LoadErrorKind::Fault(fault)))?;
    Ok((rsp, vector))
}
