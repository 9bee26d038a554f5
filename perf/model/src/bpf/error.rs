//! What can be wrong with an object file, and with a program before it runs.

use std::fmt;
use unwind_sim_perf_data::btf::BtfErrorKind;

/// Why an object file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectErrorKind {
    /// Not an ELF file, or a table of it lies outside the file; the reader's words.
    Elf(&'static str),
    /// ELF, but for another machine than BPF (`EM_BPF`, 247).
    Machine(u16),
    /// A linked file; a relocatable one is wanted.
    Type(u16),
    /// Something needs more bytes than are there.
    Short {
        /// Bytes needed.
        need: u64,
        /// Bytes there.
        have: u64,
    },
    /// A section of code whose size is no multiple of 8, or a function that does not begin and
    /// end between instructions.
    CodeSize(u64),
    /// A function lies outside its section.
    FunctionOutside {
        /// Its name.
        name: String,
    },
    /// No function in any section of code but `.text`.
    NoProgram,
    /// A relocation names a symbol that is not there.
    Symbol(u64),
    /// A relocation of a type that code cannot have.
    RelocationType(u32),
    /// A relocation at an instruction that takes none.
    RelocationTarget,
    /// A symbol that the object does not define: a kernel symbol, or a Kconfig value.
    Undefined(String),
    /// A symbol in a section that no instruction can refer to.
    ReferTo(String),
    /// A call that leads to no function.
    CallTarget(i64),
    /// A program with its subprograms is too long.
    TooLong {
        /// Instructions.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// More of something than an object may have.
    TooMany {
        /// How many.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// A map's definition is too short, or has words that are not zero after those known.
    MapDefinition(String),
    /// A member of a map's definition that is not known here.
    MapMember(String),
    /// Its type information is malformed.
    Btf(BtfErrorKind),
    /// The object asks for offsets of a running kernel's types (CO-RE).
    Core(u32),
}

impl fmt::Display for ObjectErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elf(what) => write!(f, "{what}"),
            Self::Machine(machine) => {
                write!(
                    f,
                    "machine {machine} is not BPF (247); compile with -target bpf"
                )
            }
            Self::Type(kind) => write!(f, "ELF type {kind} is not a relocatable object (1)"),
            Self::Short { need, have } => write!(f, "cut short: needs {need} bytes, has {have}"),
            Self::CodeSize(size) => {
                write!(
                    f,
                    "{size:#x} is no multiple of the 8 bytes of an instruction"
                )
            }
            Self::FunctionOutside { name } => {
                write!(f, "function {name} lies outside its section")
            }
            Self::NoProgram => write!(f, "no program: no function outside .text"),
            Self::Symbol(index) => write!(f, "there is no symbol {index}"),
            Self::RelocationType(kind) => {
                write!(f, "relocation type {kind} does not belong in code")
            }
            Self::RelocationTarget => {
                write!(
                    f,
                    "a relocation of an instruction that is neither ld_imm64 nor a call"
                )
            }
            Self::Undefined(name) => write!(
                f,
                "`{name}` is not defined here: symbols and settings of a kernel are not supported"
            ),
            Self::ReferTo(name) => write!(f, "no instruction can refer to section `{name}`"),
            Self::CallTarget(target) => write!(
                f,
                "a call to instruction {target} of its section, where no function begins"
            ),
            Self::TooLong { count, limit } => {
                write!(f, "a program of {count} instructions, the limit is {limit}")
            }
            Self::TooMany { count, limit } => write!(f, "{count} of them, the limit is {limit}"),
            Self::MapDefinition(name) => write!(f, "the definition of map `{name}` is malformed"),
            Self::MapMember(name) => {
                write!(f, "member `{name}` of a map's definition is not supported")
            }
            Self::Btf(kind) => write!(f, "{kind}"),
            Self::Core(count) => write!(
                f,
                "{count} bytes of relocations against a kernel's types (CO-RE), which are not \
                 supported; declare the structures that are needed"
            ),
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, offset, part } = self;
        write!(f, "BPF object: {part} at offset {offset:#x}: {kind}")
    }
}

impl std::error::Error for ObjectError {}

/// Why a program may not run, or its maps not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The program, or the map.
    pub name: String,
    /// Number of the instruction; `None` for maps.
    pub insn: Option<usize>,
    /// What is wrong.
    pub kind: LoadErrorKind,
}

/// The kinds of [`LoadError`]. The kernel's verifier refuses all of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The program has no instruction.
    Empty,
    /// An operation code that does not exist.
    Opcode(u8),
    /// `LD_ABS` or `LD_IND`, which only socket filters have.
    PacketAccess(u8),
    /// A field that must be zero is not, or has a value that means nothing.
    Reserved,
    /// A register above 10.
    Register(u8),
    /// r10 as destination.
    FramePointer,
    /// A shift by at least the width of the register.
    Shift(i32),
    /// A division by the immediate 0.
    DivideByZero,
    /// A jump, call or function address that leads out of the program or into the middle of
    /// `ld_imm64`.
    Target(i64),
    /// A jump out of one function into another.
    LeavesFunction(i64),
    /// The last instruction of a function is neither a jump nor the exit.
    NoEnd,
    /// The second half of `ld_imm64` is missing or not empty.
    LdImm64,
    /// A kind of `ld_imm64` that needs a running kernel.
    LdImm64Source(u8),
    /// A map that does not exist.
    Map(i64),
    /// A value of a map that is no array of one entry, or an offset outside it.
    MapValue(i64),
    /// A helper that is not there: its number, and its name if it has one.
    Helper(i32, Option<&'static str>),
    /// A helper for programs under the GPL only, in a program that is not.
    GplOnly(&'static str),
    /// A call to a kernel function by its BTF number.
    KernelFunction(i32),
    /// An indirect jump or call.
    Indirect(u8),
    /// A map of a type that is not there: its number, and its name if it has one.
    MapType(u32, Option<&'static str>),
    /// Sizes or flags that the kernel refuses for this type of map (`EINVAL`).
    MapAttributes,
    /// All maps together need more memory than the limit, bytes.
    MapMemory {
        /// Bytes needed.
        need: u64,
        /// The limit.
        limit: u64,
    },
    /// There are more maps than pointers can name.
    TooManyMaps(usize),
}

impl fmt::Display for LoadErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => write!(f, "it has no instruction"),
            Self::Opcode(code) => write!(f, "unknown opcode {code:#04x}"),
            Self::PacketAccess(code) => write!(
                f,
                "{code:#04x} (LD_ABS or LD_IND) reads packets, which only socket filters have"
            ),
            Self::Reserved => write!(f, "a reserved field is not zero"),
            Self::Register(register) => write!(f, "there is no register r{register}"),
            Self::FramePointer => write!(f, "the frame pointer r10 is read-only"),
            Self::Shift(count) => write!(f, "a shift by {count} bits"),
            Self::DivideByZero => write!(f, "a division by the constant 0"),
            Self::Target(target) => write!(f, "no instruction begins at its target {target}"),
            Self::LeavesFunction(target) => {
                write!(f, "its target {target} belongs to another function")
            }
            Self::NoEnd => write!(f, "a function ends here with neither a jump nor an exit"),
            Self::LdImm64 => write!(f, "ld_imm64 without its second half"),
            Self::LdImm64Source(source) => write!(
                f,
                "ld_imm64 of kind {source}, which needs a running kernel's types"
            ),
            Self::Map(map) => write!(f, "there is no map {map}"),
            Self::MapValue(offset) => {
                write!(
                    f,
                    "offset {offset} does not lie in the value of an array of one entry"
                )
            }
            Self::Helper(number, Some(name)) => {
                write!(f, "helper {number} ({name}) is not modelled")
            }
            Self::Helper(number, None) => write!(f, "helper {number} does not exist"),
            Self::GplOnly(name) => write!(
                f,
                "helper {name} is for programs under the GPL; the object's license is another"
            ),
            Self::KernelFunction(id) => {
                write!(
                    f,
                    "a call to the kernel function with BTF id {id} is not modelled"
                )
            }
            Self::Indirect(code) => {
                write!(f, "{code:#04x}: indirect jumps and calls are not modelled")
            }
            Self::MapType(number, Some(name)) => {
                write!(f, "map type {number} ({name}) is not modelled")
            }
            Self::MapType(number, None) => write!(f, "map type {number} does not exist"),
            Self::MapAttributes => write!(f, "sizes or flags that this type of map cannot have"),
            Self::MapMemory { need, limit } => {
                write!(f, "the maps need {need} bytes, the limit is {limit}")
            }
            Self::TooManyMaps(count) => write!(f, "{count} maps, more than can be told apart"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.insn {
            Some(insn) => write!(f, "{}: instruction {insn}: {}", self.name, self.kind),
            None => write!(f, "{}: {}", self.name, self.kind),
        }
    }
}

impl std::error::Error for LoadError {}
