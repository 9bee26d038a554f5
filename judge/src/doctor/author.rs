//! Who wrote the code and the rows at a place, as far as the file says.

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::fmt;
use unwind_sim_unwind::image::{Image, Mapping, SectionKind};

/// The maximum number of bytes read of `.comment`.
const COMMENT_MAX: usize = 4096;
/// The maximum number of producers that are named.
const PRODUCERS_MAX: usize = 2;

/// The functions of GCC's start files, which end up in every program and library.
const START_FILES: [&str; 4] = [
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
];

/// Who wrote a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Author {
    /// The linker: a procedure linkage table.
    Linker,
    /// The kernel: its vdso.
    Kernel,
    /// A person: the symbol is of this assembly file.
    Assembly(String),
    /// A compiler: the symbol is of this source file.
    Compiler(String),
    /// A program, while it ran.
    Jit,
    /// The file does not say. It has code by these compilers.
    Unknown(Vec<String>),
}

impl Author {
    /// The stable name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Author::Linker => "linker",
            Author::Kernel => "kernel",
            Author::Assembly(_) => "assembly",
            Author::Compiler(_) => "compiler",
            Author::Jit => "jit",
            Author::Unknown(_) => "unknown",
        }
    }

    /// Who wrote what is at `address` (avma) of a mapping.
    pub(super) fn of(mapping: Option<&Mapping>, address: u64) -> Author {
        let unknown = Author::Unknown(Vec::new());
        let Some(mapping) = mapping else {
            return unknown;
        };
        if mapping.name == "[vdso]" {
            return Author::Kernel;
        }
        let Some(image) = &mapping.image else {
            return match mapping.name.starts_with('/') {
                true => unknown,
                false => Author::Jit,
            };
        };
        let svma = mapping.svma(address);
        match image.symbol(svma).map(|s| s.name.as_str()) {
            Some(name) if name.ends_with("@plt") => return Author::Linker,
            Some(name) if START_FILES.contains(&name) => {
                return Author::Compiler("crtstuff.c".into());
            }
            _ => {}
        }
        of_image(image, svma).unwrap_or(unknown)
    }
}

/// What the file of an image says; `None` if the image has no file.
fn of_image(image: &Image, svma: u64) -> Option<Author> {
    let mut texts = image.sections().iter();
    let text = texts.find(|s| s.kind == SectionKind::Text)?;
    let bytes: &[u8] = (**text.data.owner()).as_ref();
    let elf: ElfFile64<'_> = ElfFile64::parse(bytes).ok()?;
    let mut sections = elf.sections();
    let section = sections.find(|s| svma.wrapping_sub(s.address()) < s.size() && s.address() != 0);
    let name = section
        .as_ref()
        .and_then(|s| s.name().ok())
        .unwrap_or_default();
    if name.starts_with(".plt") || name == ".iplt" {
        return Some(Author::Linker);
    }
    if let Some(source) = source_of(&elf, svma) {
        let ending = source.rsplit_once('.').map_or("", |(_, ending)| ending);
        return Some(match ending {
            "S" | "s" | "asm" | "nasm" => Author::Assembly(source),
            _ => Author::Compiler(source),
        });
    }
    let comment = elf.section_by_name(".comment").and_then(|s| s.data().ok());
    let comment = comment.unwrap_or_default();
    let comment = &comment[..comment.len().min(COMMENT_MAX)];
    let words = comment.split(|&b| b == 0).filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    Some(Author::Unknown(words.take(PRODUCERS_MAX).collect()))
}

/// The source file that the symbol table names for a local symbol at `svma`.
fn source_of(elf: &ElfFile64<'_>, svma: u64) -> Option<String> {
    let mut file = None;
    for symbol in elf.symbols() {
        if symbol.kind() == SymbolKind::File {
            file = symbol.name().ok();
        } else if symbol.is_local()
            && symbol.is_definition()
            && svma.wrapping_sub(symbol.address()) < symbol.size()
        {
            return file.filter(|name| !name.is_empty()).map(str::to_owned);
        }
    }
    None
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Author::Linker => f.write_str("the linker"),
            Author::Kernel => f.write_str("the kernel"),
            Author::Assembly(file) => write!(f, "a person, in assembly ({file})"),
            Author::Compiler(file) => write!(f, "a compiler ({file})"),
            Author::Jit => f.write_str("a program at run time"),
            Author::Unknown(producers) if producers.is_empty() => f.write_str("unknown"),
            Author::Unknown(producers) => {
                write!(f, "unknown (the file has code by {})", producers.join("; "))
            }
        }
    }
}
