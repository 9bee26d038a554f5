//! Loads programs into memory as Linux's `execve` does.
//!
//! Source: Linux 6.12 `fs/binfmt_elf.c` (`load_elf_binary`, `elf_load`, `create_elf_tables`) and
//! `arch/x86/include/asm/elf.h`, without address space randomisation, vdso and `PT_GNU_PROPERTY`.
//! Not here: the initial stack (`stack`), finding the files, scripts (`#!`).

mod elf;
mod error;
mod stack;
#[cfg(test)]
mod tests;

pub use error::{ElfFile, LoadError, LoadErrorKind};
pub use stack::{AuxvEntry, auxv};

use crate::address_space::{AddressSpace, Content, PAGE_SIZE, Permissions, TASK_SIZE};
use elf::Executable;
use std::ops::Range;

/// The end of the stack (`STACK_TOP`).
pub const STACK_TOP: u64 = TASK_SIZE;
/// The start of position-independent programs: two thirds of user space, as on Linux.
pub const ELF_ET_DYN_BASE: u64 = 0x5555_5555_4000;
/// Linux maps downward from this address: 128 MiB above it are kept free for a stack of at most
/// that size (`arch/x86/mm/mmap.c`, `mmap_base`).
pub const MMAP_BASE: u64 = 0x7fff_f7ff_f000;

/// Options for loading a program.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Size of the stack, bytes; all of it is mapped.
    pub stack_size: u64,
    /// The bytes that `AT_RANDOM` points to.
    pub random: [u8; 16],
    /// The string that `AT_EXECFN` points to: the path given to `execve`.
    pub path: Vec<u8>,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// `AT_HWCAP`: edx of cpuid leaf 1.
    pub hwcap: u64,
    /// `AT_HWCAP2`: bit 1 says that `rdfsbase` and `wrfsbase` may be used.
    pub hwcap2: u64,
    /// `AT_MINSIGSTKSZ`: the size of the largest signal frame, bytes.
    pub signal_stack: u64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            stack_size: 8 << 20,
            random: *b"unwind-sim rando",
            path: Vec::new(),
            uid: 1000,
            gid: 1000,
            hwcap: 0x1783_fbff,
            hwcap2: 2,
            signal_stack: 2048,
        }
    }
}

/// A mapping of a loaded file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The file.
    pub which: ElfFile,
    /// The addresses, whole pages.
    pub range: Range<u64>,
    /// Offset in the file, bytes; 0 for memory without a file.
    pub file_offset: u64,
    /// Whether the file backs it; otherwise it is zero (the end of `.bss`).
    pub is_file: bool,
    /// The permissions.
    pub permissions: Permissions,
}

/// A program that is ready to run.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The first instruction, which is the interpreter's if there is one.
    pub entry: u64,
    /// The initial stack pointer, which points at argc.
    pub rsp: u64,
    /// The program's bias: its address minus the one in the file.
    pub bias: u64,
    /// The interpreter's bias.
    pub interpreter_bias: Option<u64>,
    /// The start of the heap: the end of the program's last segment, rounded up.
    pub brk: u64,
    /// The stack.
    pub stack: Range<u64>,
    /// The mappings, in the order of program headers, those of the program first.
    pub mappings: Vec<Mapping>,
    /// The auxiliary vector on the stack.
    pub auxv: Vec<AuxvEntry>,
}

/// The path of the interpreter that a program requests (`PT_INTERP`), without its NUL.
///
/// # Errors
/// If it is not an x86-64 program.
pub fn interpreter(program: &Content) -> Result<Option<Vec<u8>>, LoadError> {
    Executable::parse(ElfFile::Program, program).map(|program| program.interpreter)
}

/// Loads `program` into an empty `space`, with `interpreter` if the program requests one.
///
/// # Errors
/// If one of the files is not an x86-64 program, if it cannot be mapped at its address, or if
/// arguments and environment do not fit on the stack.
pub fn load(
    space: &mut AddressSpace,
    program: &Content,
    interpreter: Option<&Content>,
    args: &[&[u8]],
    env: &[&[u8]],
    options: &LoadOptions,
) -> Result<Loaded, LoadError> {
    let main = Executable::parse(ElfFile::Program, program)?;
    let interpreter = match (&main.interpreter, interpreter) {
        (None, _) => None,
        (Some(_), Some(bytes)) => Some((Executable::parse(ElfFile::Interpreter, bytes)?, bytes)),
        (Some(_), None) => return Err(main.error(LoadErrorKind::NoInterpreter, "PT_INTERP")),
    };

    // The stack comes first, as in `load_elf_binary`: what is placed later avoids it.
    let mut mappings = Vec::new();
    let stack = map_stack(space, &main, options)?;
    // A program without an interpreter, such as ld.so itself, must not occupy the addresses of a
    // program that it may load.
    let bias = match (main.is_dyn, &interpreter) {
        (false, _) => 0,
        (true, Some(_)) => main.bias_at(ELF_ET_DYN_BASE),
        (true, None) => main.place(space, MMAP_BASE)?,
    };

    main.map(space, program, bias, &mut mappings)?;

    // An interpreter starts first, and finds the program through AT_PHDR and AT_ENTRY.
    let mut entry = main.entry.wrapping_add(bias);
    let mut interpreter_bias = None;
    if let Some((interpreter, bytes)) = &interpreter {
        let bias = if interpreter.is_dyn {
            interpreter.place(space, MMAP_BASE)?
        } else {
            0
        };
        interpreter.map(space, bytes, bias, &mut mappings)?;
        entry = interpreter.entry.wrapping_add(bias);
        interpreter_bias = Some(bias);
    }

    let auxv = stack::vector(&main, bias, interpreter_bias, options);
    let (rsp, auxv) = stack::write(space, &stack, args, env, auxv, options)?;

    Ok(Loaded {
        entry,
        rsp,
        bias,
        interpreter_bias,
        brk: main.end().wrapping_add(bias),
        stack,
        mappings,
        auxv,
    })
}

fn map_stack(
    space: &mut AddressSpace,
    main: &Executable,
    options: &LoadOptions,
) -> Result<Range<u64>, LoadError> {
    let size = options.stack_size.clamp(PAGE_SIZE, STACK_TOP / 2) & !(PAGE_SIZE - 1);
    let range = STACK_TOP - size..STACK_TOP;
    let permissions = Permissions::new(true, true, main.executable_stack);
    let mapped = space.map(range.clone(), permissions);
    mapped.map_err(|error| main.error(LoadErrorKind::Map(error), "stack"))?;
    Ok(range)
}
