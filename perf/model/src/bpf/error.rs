//! Errors in object files, and in programs before they run.

use thiserror::Error;
use unwind_sim_perf_data::btf::BtfErrorKind;

/// Why an object file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("BPF object: {part} at offset {offset:#x}: {kind}")]
pub struct ObjectError {
    /// What is wrong.
    pub kind: ObjectErrorKind,
    /// Byte offset in the file.
    pub offset: u64,
    /// The section or part concerned.
    pub part: String,
}

impl ObjectError {
    pub(crate) fn new(kind: ObjectErrorKind, offset: u64, part: impl Into<String>) -> Self {
        Self {
            kind,
            offset,
            part: part.into(),
        }
    }
}

/// The kinds of [`ObjectError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectErrorKind {
    /// Not an ELF file, or one of its tables lies outside the file; a description.
    #[error("{0}")]
    Elf(&'static str),
    /// An ELF file for a machine other than BPF (`EM_BPF`, 247).
    #[error("machine {0} is not BPF (247); compile with -target bpf")]
    Machine(u16),
    /// Not a relocatable file.
    #[error("ELF type {0} is not a relocatable object (1)")]
    Type(u16),
    /// Something needs more bytes than there are.
    #[error("cut short: needs {need} bytes, has {have}")]
    Short {
        /// Bytes needed.
        need: u64,
        /// Bytes that exist.
        have: u64,
    },
    /// The size of a code section is not a multiple of 8, or a function does not start and end at
    /// instruction boundaries.
    #[error("{0:#x} is not a multiple of 8, the size of an instruction")]
    CodeSize(u64),
    /// A function lies outside its section.
    #[error("function {name} lies outside its section")]
    FunctionOutside {
        /// Its name.
        name: String,
    },
    /// There is no function in a code section other than `.text`.
    #[error("no program: no function outside .text")]
    NoProgram,
    /// A relocation names a symbol that does not exist.
    #[error("symbol {0} does not exist")]
    Symbol(u64),
    /// A relocation of a type that code cannot have.
    #[error("relocation type {0} is not valid in code")]
    RelocationType(u32),
    /// A relocation at an instruction that takes none.
    #[error("relocation at an instruction that is neither ld_imm64 nor a call")]
    RelocationTarget,
    /// A symbol that the object does not define: a kernel symbol, or a Kconfig value.
    #[error("`{0}` is undefined; kernel symbols and Kconfig values are not supported")]
    Undefined(String),
    /// A symbol in a section that no instruction can refer to.
    #[error("no instruction can refer to section `{0}`")]
    ReferTo(String),
    /// The target of a call is not a function.
    #[error("call to instruction {0} of its section, where no function starts")]
    CallTarget(i64),
    /// A program with its subprograms is too long.
    #[error("the program has {count} instructions; the limit is {limit}")]
    TooLong {
        /// Instructions.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// More of something than an object may have.
    #[error("there are {count}; the limit is {limit}")]
    TooMany {
        /// The number found.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// A map's definition is too short, or has words that are not zero after those known.
    #[error("the definition of map `{0}` is malformed")]
    MapDefinition(String),
    /// A member of a map's definition that is not known here.
    #[error("member `{0}` of a map's definition is not supported")]
    MapMember(String),
    /// Its type information is malformed.
    #[error("{0}")]
    Btf(BtfErrorKind),
    /// The object has relocations against a running kernel's types (CO-RE); their size in bytes.
    #[error(
        "CO-RE relocations ({0} bytes) are not supported; declare the needed structures instead"
    )]
    Core(u32),
}

/// Why a program cannot be loaded, or its maps cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name}: {}{kind}", place(*.insn))]
pub struct LoadError {
    /// The program, or the map.
    pub name: String,
    /// Number of the instruction; `None` for maps.
    pub insn: Option<usize>,
    /// What is wrong.
    pub kind: LoadErrorKind,
}

/// The kinds of [`LoadError`]. The kernel's verifier refuses all of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The program has no instructions.
    #[error("it has no instructions")]
    Empty,
    /// An operation code that does not exist.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// `LD_ABS` or `LD_IND`, which only socket filters have.
    #[error("{0:#04x} (LD_ABS or LD_IND) reads packets, which only socket filters may do")]
    PacketAccess(u8),
    /// A reserved field is not zero, or a field has an undefined value.
    #[error("a reserved field is not zero")]
    Reserved,
    /// A register above 10.
    #[error("register r{0} does not exist")]
    Register(u8),
    /// r10 as destination.
    #[error("the frame pointer r10 is read-only")]
    FramePointer,
    /// A shift by at least the width of the register.
    #[error("invalid shift by {0} bits")]
    Shift(i32),
    /// A division by the immediate 0.
    #[error("division by the constant 0")]
    DivideByZero,
    /// A jump, call or function address that leads out of the program or into the middle of
    /// `ld_imm64`.
    #[error("its target {0} is not an instruction boundary")]
    Target(i64),
    /// A jump out of one function into another.
    #[error("its target {0} is in another function")]
    LeavesFunction(i64),
    /// The last instruction of a function is neither a jump nor the exit.
    #[error("the function does not end in a jump or an exit")]
    NoEnd,
    /// The second half of `ld_imm64` is missing or not empty.
    #[error("ld_imm64 without its second half")]
    LdImm64,
    /// A kind of `ld_imm64` that needs a running kernel.
    #[error("ld_imm64 of kind {0} needs the types of a running kernel")]
    LdImm64Source(u8),
    /// A map that does not exist.
    #[error("map {0} does not exist")]
    Map(i64),
    /// An address of the value of a map that is not an array of one entry, or outside that value.
    #[error("offset {0} is not in the value of an array of one entry")]
    MapValue(i64),
    /// A helper that is not modelled: its number, and its name if the kernel has it.
    #[error("helper {}{}", .0, availability(*.1))]
    Helper(i32, Option<&'static str>),
    /// A helper for GPL programs, in a program with another license.
    #[error("helper {0} is for GPL programs only; the object has another license")]
    GplOnly(&'static str),
    /// A call to a kernel function by its BTF number.
    #[error("calls of kernel functions are not modelled (BTF id {0})")]
    KernelFunction(i32),
    /// An indirect jump or call.
    #[error("{0:#04x}: indirect jumps and calls are not modelled")]
    Indirect(u8),
    /// A map of a type that is not modelled: its number, and its name if the kernel has it.
    #[error("map type {}{}", .0, availability(*.1))]
    MapType(u32, Option<&'static str>),
    /// Sizes or flags that the kernel refuses for this type of map (`EINVAL`).
    #[error("invalid sizes or flags for this type of map")]
    MapAttributes,
    /// All maps together need more memory than the limit, bytes.
    #[error("the maps need {need} bytes; the limit is {limit}")]
    MapMemory {
        /// Bytes needed.
        need: u64,
        /// The limit.
        limit: u64,
    },
    /// There are more maps than pointers can name.
    #[error("{0} maps are more than pointers can name")]
    TooManyMaps(usize),
}

fn place(insn: Option<usize>) -> String {
    insn.map_or_else(String::new, |insn| format!("instruction {insn}: "))
}

/// The rest of the message about something that is not modelled. The kernel has it if it has a
/// name.
fn availability(name: Option<&str>) -> String {
    match name {
        Some(name) => format!(" ({name}) is not modelled"),
        None => " does not exist".to_owned(),
    }
}
