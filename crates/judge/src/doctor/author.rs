//! Who wrote the code and the rows at a place, as far as the file and its debug information say.

use super::origin::{Author, Language, Origin};
use super::place;
use super::proven_row::Checker;
use crate::blame;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::sync::Arc;
use unwind_sim_recordings::files::{FinderOptions, Producer, producer};
use unwind_sim_unwind::image::{Image, Mapping, SectionKind};

/// The maximum number of bytes read of `.comment`.
const COMMENT_MAX: usize = 4096;
/// The maximum number of producers that are named.
const PRODUCERS_MAX: usize = 2;

/// The source of GCC's start files.
const START_FILE: &str = "crtstuff.c";

/// A place in code, kept until the origin of its code is asked for.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) image: Option<Arc<Image>>,
    name: String,
    svma: u64,
}

impl Spot {
    /// The place of `address` (avma) in a mapping.
    pub(super) fn of(mapping: &Mapping, address: u64) -> Spot {
        Spot {
            image: mapping.image.clone(),
            name: mapping.name.clone(),
            svma: mapping.svma(address),
        }
    }

    /// The image, and its own address.
    pub(super) fn place(&self) -> Option<(Arc<Image>, u64)> {
        Some((self.image.clone()?, self.svma))
    }

    /// Who wrote the code there. `checker` finds whole files, `files` says where debug files are.
    pub(super) fn origin(&self, checker: &mut Checker, files: &FinderOptions) -> Origin {
        let unknown = Author::Unknown(Vec::new());
        if self.name == "[vdso]" {
            // The vDSO has no file: the kernel maps it into each process.
            return Origin::by(Author::Kernel);
        }
        let Some(image) = &self.image else {
            // A path is a file that could not be read. Other memory has a name in brackets or none.
            return Origin::by(if self.name.starts_with('/') {
                unknown
            } else {
                Author::Jit
            });
        };
        match image.symbol(self.svma).map(|s| s.name.as_str()) {
            Some(name) if name.ends_with("@plt") || name.ends_with("$plt") => {
                return Origin::by(Author::Linker);
            }
            Some(name)
                if place::is_of_gcc(name) && !place::is_beyond_start_file(image, self.svma) =>
            {
                return Origin::by(Author::Compiler(START_FILE.into()));
            }
            _ => {}
        }
        of_image(&checker.whole(image), self.svma, files).unwrap_or_else(|| Origin::by(unknown))
    }
}

/// What the file of an image says; `None` if the image has no file.
fn of_image(image: &Image, svma: u64, files: &FinderOptions) -> Option<Origin> {
    let mut texts = image.sections().iter();
    let text = texts.find(|s| s.kind == SectionKind::Text)?;
    let bytes: &[u8] = (**text.data.owner()).as_ref();
    let elf: ElfFile64<'_> = ElfFile64::parse(bytes).ok()?;

    // Sections that are not loaded have address 0 (ELF gABI, `sh_addr`), and would seem to contain
    // low addresses.
    let mut sections = elf.sections();
    let section = sections.find(|s| svma.wrapping_sub(s.address()) < s.size() && s.address() != 0);
    let name = section
        .as_ref()
        .and_then(|s| s.name().ok())
        .unwrap_or_default();

    // The linker makes the PLT; no compiler has a part in it.
    if name.starts_with(".plt") || name == ".iplt" {
        return Some(Origin::by(Author::Linker));
    }

    // `DW_AT_producer` is of this unit, `.comment` of the whole file.
    let made = producer(bytes, svma, image.build_id(), files);
    let comment = comment(&elf);
    let mut language = match &made {
        Some(made) => Language::of(&made.text),
        None => Language::of(&comment.join(" ")),
    };

    // Go's compiler names itself in no `.comment`, but every program has its function table.
    if language == Language::Unknown && elf.section_by_name(".gopclntab").is_some() {
        language = Language::Go;
    }

    if elf.section_by_name(".fpcdata").is_some() {
        language = Language::Pascal;
    }

    // LDC may have compiled only a part of the file. The names of D start with `_D` (D language
    // specification, ABI).
    if made.is_none() && comment.iter().any(|words| words.contains("ldc version")) {
        let is_d = |symbol: &unwind_sim_unwind::image::Symbol| symbol.name.starts_with("_D");
        language = if image.symbol(svma).is_some_and(is_d) {
            Language::Ldc
        } else {
            language
        };
    }

    let is_unnamed = image.symbol(svma).is_none_or(|symbol| symbol.size == 0);
    // GHC strips the names of its local functions; `hs_main` starts its programs.
    if is_unnamed && made.is_none() && image.symbols().iter().any(|s| s.name == "hs_main") {
        language = Language::Haskell;
    }

    // A name is of this function; most of what was found so far may be of other units of the file.
    if let Some(known) = image.symbol(svma).and_then(|symbol| of_name(&symbol.name)) {
        language = known;
    }

    let source = source_of(&elf, svma);
    // The units of rustc that its symbol tables name: `CRATE.HASH-cgu.0`.
    if source.as_ref().is_some_and(|s| s.contains("-cgu.")) {
        language = Language::Rust;
    }

    let is_c = |s: &String| {
        ["c", "cc", "cpp", "cxx", "C"]
            .iter()
            .any(|e| s.ends_with(&format!(".{e}")))
    };
    // rustc's words in `.comment` are of other units: this one is C, by another compiler named
    // there.
    if made.is_none() && language == Language::Rust && source.as_ref().is_some_and(is_c) {
        language = Language::of(&comment.join(" ").replace("rustc", ""));
    }

    // Of code without a name, the symbol table's file is that of another function.
    let is_unknown = is_unnamed && language == Language::Haskell;
    let source = source.filter(|_| !is_unknown);

    let author = match source.or_else(|| made.as_ref().and_then(name_of)) {
        Some(source) if is_assembly(&source, made.as_ref()) => Author::Assembly(source),
        Some(source) => Author::Compiler(source),
        None => Author::Unknown(comment),
    };

    Some(Origin {
        author,
        language,
        debug_file: match made {
            Some(_) => None,
            None => debug_link(&elf),
        },
        producer: made.map(|made| made.text),
    })
}

/// The name of the separate debug file that `.gnu_debuglink` names.
fn debug_link(elf: &ElfFile64<'_>) -> Option<String> {
    let (name, _) = elf.gnu_debuglink().ok()??;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The language of a function by how its compiler names functions: `camlMain__fib_12` and
/// `caml_c_call`, `Main_main1_info`.
fn of_name(name: &str) -> Option<Language> {
    let is_module = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    let ocaml = name.strip_prefix("caml").is_some_and(is_module);
    let haskell = name.ends_with("_info") && name.contains('_') || name.starts_with("stg_");
    match (ocaml, haskell) {
        (true, _) => Some(Language::Ocaml),
        (false, true) => Some(Language::Haskell),
        (false, false) => None,
    }
}

/// The name of a unit's source file, without its folder.
fn name_of(made: &Producer) -> Option<String> {
    let name = made.source.rsplit('/').next().unwrap_or_default();
    (!name.is_empty()).then(|| name.to_owned())
}

fn is_assembly(source: &str, made: Option<&Producer>) -> bool {
    blame::is_assembly(source) || made.is_some_and(|m| blame::is_assembler(&m.text))
}

/// The compilers that `.comment` names. A linker also names itself there.
fn comment(elf: &ElfFile64<'_>) -> Vec<String> {
    let comment = elf.section_by_name(".comment").and_then(|s| s.data().ok());
    compilers(comment.unwrap_or_default())
}

/// The compilers among the words of a `.comment` section.
fn compilers(comment: &[u8]) -> Vec<String> {
    let comment = &comment[..comment.len().min(COMMENT_MAX)];
    let words = comment.split(|&b| b == 0).filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    let compilers = words.filter(|word| !word.starts_with("Linker: "));
    compilers.take(PRODUCERS_MAX).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linker_is_no_compiler() {
        let comment = b"\0Linker: LLD 15.0.6\0clang version 15.0.6\0rustc version 1.95\0third\0";
        assert_eq!(
            compilers(comment),
            ["clang version 15.0.6", "rustc version 1.95"]
        );
        assert!(compilers(b"Linker: LLD 15.0.6\0").is_empty());
    }

    #[test]
    fn producers_say_the_language() {
        let all = [
            ("GNU C17 12.2.0 -mtune=generic -g -O2", Language::Gcc),
            ("GCC: (Debian 12.2.0) 12.2.0", Language::Gcc),
            ("GNU Fortran2008 12.2.0", Language::Gcc),
            ("clang version 15.0.6", Language::Clang),
            // rustc's producer starts with the name of another compiler.
            ("clang LLVM (rustc version 1.95.0)", Language::Rust),
            ("Go cmd/compile go1.19.8; regabi", Language::Go),
            ("LDC 1.30.0 (LLVM 14.0.6)", Language::Ldc),
            ("GNU D 12.2.0", Language::Gcc),
            ("Free Pascal 3.2.2+dfsg-20 2023/03/30", Language::Pascal),
            ("something else", Language::Unknown),
        ];

        for (words, language) in all {
            assert_eq!(Language::of(words), language, "{words}");
        }

        let by = |text: &str| Producer {
            text: text.into(),
            source: "../a/memmove.x".into(),
        };

        // By the ending or, if that says nothing, by the assembler in DW_AT_producer.
        assert!(is_assembly("a.S", None) && !is_assembly("a.c", None));
        assert!(is_assembly("memmove.x", Some(&by("GNU AS 2.40"))));
        assert!(!is_assembly("memmove.x", Some(&by("GNU C17 12.2.0"))));
        assert_eq!(name_of(&by("")), Some("memmove.x".into()));
    }
}
