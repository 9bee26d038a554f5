//! Who wrote the code at an address, as far as the file says.
//!
//! Code and its rows have one author, except that a linker writes the rows of its own code. No file
//! says it of every function: without debug information, only the compilers are known that wrote some
//! of it.

use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::fmt;
use std::ops::Range;
use unwind_sim_recordings::files::{FinderOptions, Producers};
use unwind_sim_tables::file::File;

/// The maximum number of bytes read of `.comment`.
const COMMENT_MAX: usize = 1 << 16;
/// The maximum number of compilers that are named.
const NAMED_MAX: usize = 4;
/// The maximum number of local symbols whose source file is kept.
const SOURCES_MAX: usize = 1 << 20;
/// The section by which gold is known.
const GOLD: &str = ".note.gnu.gold-version";

/// The name of Mono's ahead-of-time compiler, which names itself nowhere.
pub(super) const MONO: &str = "Mono's AOT compiler";
/// The symbol by which its files are known: its runtime looks for it.
const MONO_SYMBOL: &str = "mono_aot_file_info";

/// What kind of author.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A compiler.
    Compiler,
    /// A person, in assembly.
    Hand,
    /// The linker.
    Linker,
    /// A compiler or a person: the file names only the compilers that wrote some of it.
    Either,
    /// Nothing is known.
    Unknown,
}

impl Kind {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Compiler => "compiler",
            Kind::Hand => "hand",
            Kind::Linker => "linker",
            Kind::Either => "either",
            Kind::Unknown => "unknown",
        }
    }
}

/// Where an author is known from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Evidence {
    /// `DW_AT_producer`.
    DebugInfo,
    /// The source file of a local symbol, or a symbol that only one compiler defines.
    SymbolTable,
    /// The words that compilers leave in the file, `.comment`.
    Comment,
    /// An object without `.comment`: assemblers write none.
    NoComment,
    /// The name of the section.
    Section,
    /// Nothing.
    None,
}

impl Evidence {
    /// The words for display, and the stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Evidence::DebugInfo => "DW_AT_producer",
            Evidence::SymbolTable => "symbol table",
            Evidence::Comment => ".comment",
            Evidence::NoComment => "no .comment",
            Evidence::Section => "section",
            Evidence::None => "nothing",
        }
    }
}

/// Who wrote a function.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Writer {
    /// What kind of author.
    pub kind: Kind,
    /// The compilers with their versions, or the linker; empty if they are not known.
    pub tools: Vec<String>,
    /// The source file, if it is assembly.
    pub source: Option<String>,
    /// Where this is known from.
    pub evidence: Evidence,
}

impl Writer {
    /// Whether it may have been this family of compilers: one of the words is in a tool's name.
    pub fn may_be(&self, words: &[&str]) -> bool {
        let is_of = |tool: &String| words.iter().any(|word| tool.contains(word));
        self.tools.is_empty() || self.tools.iter().any(is_of)
    }

    /// Whether a person may have written it.
    pub fn may_be_hand(&self) -> bool {
        !matches!(self.kind, Kind::Compiler | Kind::Linker)
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.tools.iter().take(NAMED_MAX).cloned();
        let named = named.collect::<Vec<_>>().join(" or ");
        let tools = match self.tools.len().saturating_sub(NAMED_MAX) {
            0 => named,
            more => format!("{named} or {more} more"),
        };
        match (self.kind, &self.source) {
            (Kind::Hand, Some(source)) if tools.is_empty() => write!(f, "by hand ({source})")?,
            (Kind::Hand, Some(source)) => write!(f, "by hand ({source}, {tools})")?,
            (Kind::Hand, None) => f.write_str("by hand, or by a compiler with -fno-ident")?,
            (Kind::Linker | Kind::Compiler, _) => write!(f, "by {tools}")?,
            (Kind::Either, _) => write!(f, "by {tools}, or by hand")?,
            (Kind::Unknown, _) => {
                return f.write_str("by an unknown author (no .comment, no debug information)");
            }
        }
        write!(f, " ({})", self.evidence.as_str())
    }
}

/// The authors of the code of a file.
#[derive(Clone, Debug, Default)]
pub struct Writers {
    compilers: Vec<String>,
    /// Whether all of it is Mono's.
    is_mono: bool,
    linker: String,
    producers: Producers,
    /// The addresses (svma) of local symbols, by start, and the number of their source file.
    locals: Vec<(Range<u64>, usize)>,
    sources: Vec<String>,
    is_object: bool,
}

impl Writers {
    /// Reads what a file says. `files` says where separate debug files are.
    pub fn read(file: &File, files: &FinderOptions) -> Writers {
        let parsed = file.elf().and_then(|bytes| ElfFile64::parse(bytes).ok());
        let (Some(elf), Some(bytes)): (Option<ElfFile64<'_>>, _) = (parsed, file.elf()) else {
            return Writers::default();
        };

        // `.comment` has the strings of all objects, each once (`SHF_MERGE`).
        let comment = elf.section_by_name(".comment").and_then(|s| s.data().ok());
        let (compilers, linkers) = tools(comment.unwrap_or_default());

        let mut symbols = elf.symbols().chain(elf.dynamic_symbols());
        let is_mono = symbols.any(|s| s.is_definition() && s.name() == Ok(MONO_SYMBOL));

        // gold names itself in a note instead.
        let gold = elf.section_by_name(GOLD).and_then(|s| s.data().ok());

        let mut writers = Writers {
            compilers,
            is_mono,
            linker: match (linkers.into_iter().next(), gold) {
                (Some(linker), _) => linker,
                (None, Some(note)) => gold_version(note),
                (None, None) => "the linker".into(),
            },
            is_object: file.is_relocatable(),
            ..Writers::default()
        };

        // An object's addresses are made up, and its relocations not applied to debug information.
        if !file.is_relocatable() {
            writers.producers = Producers::read(bytes, file.image().build_id(), files);
        }

        writers.read_sources(&elf);
        writers
    }

    fn read_sources(&mut self, elf: &ElfFile64<'_>) {
        for symbol in elf.symbols() {
            if symbol.kind() == SymbolKind::File {
                self.sources.extend(symbol.name().ok().map(str::to_owned));
            } else if symbol.is_local()
                && symbol.is_definition()
                && symbol.size() > 0
                && self.locals.len() < SOURCES_MAX
                && let Some(source) = self.sources.len().checked_sub(1)
            {
                let end = symbol.address().saturating_add(symbol.size());
                self.locals.push((symbol.address()..end, source));
            }
        }
        self.locals.sort_by_key(|(range, _)| range.start);
    }

    /// The source file of the code at `address` (svma).
    fn source(&self, address: u64) -> Option<&str> {
        let source = match (self.is_object, self.sources.as_slice()) {
            (true, [one]) => Some(one),
            // Several objects in one, whose symbols have offsets in sections.
            (true, _) => None,
            (false, _) => {
                let after = self.locals.partition_point(|(r, _)| r.start <= address);
                let (range, source) = self.locals.get(after.checked_sub(1)?)?;
                self.sources
                    .get(*source)
                    .filter(|_| range.contains(&address))
            }
        };
        source.map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Who wrote the code at `address` (svma) of the file.
    pub fn at(&self, file: &File, address: u64) -> Writer {
        let section = file.code_at(address).map_or("", |code| &code.name);

        // The linker makes the PLT, without any source.
        if section.starts_with(".plt") || section == ".iplt" {
            return Writer {
                kind: Kind::Linker,
                tools: vec![self.linker.clone()],
                source: None,
                evidence: Evidence::Section,
            };
        }

        // What a compiler says of its own unit is better than the symbols and comments below.
        if let Some(made) = self.producers.at(address) {
            let source = made.source.rsplit('/').next().unwrap_or_default();
            let is_hand = is_assembler(&made.text) || is_assembly(source);
            return Writer {
                kind: if is_hand { Kind::Hand } else { Kind::Compiler },
                tools: vec![without_options(&made.text).to_owned()],
                source: is_hand.then(|| source.to_owned()),
                evidence: Evidence::DebugInfo,
            };
        }

        let source = self.source(address);
        if let Some(source) = source.filter(|source| is_assembly(source)) {
            return Writer {
                kind: Kind::Hand,
                tools: Vec::new(),
                source: Some(source.to_owned()),
                evidence: Evidence::SymbolTable,
            };
        }

        if self.is_mono {
            return Writer {
                kind: Kind::Compiler,
                tools: vec![MONO.to_owned()],
                source: None,
                evidence: Evidence::SymbolTable,
            };
        }

        let (kind, evidence) = match (self.compilers.is_empty(), self.is_object) {
            // Compilers leave their words in each object (unless with -fno-ident), assemblers do
            // not.
            (true, true) => (Kind::Hand, Evidence::NoComment),
            (true, false) => (Kind::Unknown, Evidence::None),
            // An assembler may name no file: then its symbols come behind those of a compiler's file.
            (false, _) => (Kind::Either, Evidence::Comment),
        };

        Writer {
            kind,
            tools: self.compilers.clone(),
            source: None,
            evidence,
        }
    }
}

/// Whether a source file is assembly, by its ending.
pub(crate) fn is_assembly(source: &str) -> bool {
    let ending = source.rsplit_once('.').map_or("", |(_, ending)| ending);
    matches!(ending, "S" | "s" | "sx" | "asm" | "nasm")
}

/// Whether a `DW_AT_producer` is that of an assembler.
pub(crate) fn is_assembler(text: &str) -> bool {
    let assemblers = ["GNU AS ", "NASM ", "yasm "];
    assemblers.iter().any(|a| text.starts_with(a))
}

/// `GNU C17 12.2.0` of `GNU C17 12.2.0 -mtune=generic -O2`.
fn without_options(producer: &str) -> &str {
    producer.split(" -").next().unwrap_or(producer).trim()
}

/// The version that gold leaves in its note: `gold 1.16`.
fn gold_version(note: &[u8]) -> String {
    let words = note.split(|&b| b == 0).map(String::from_utf8_lossy);
    let version = words.into_iter().find(|words| words.starts_with("gold "));
    version.map_or_else(|| "gold".into(), |version| version.into_owned())
}

/// The compilers and the linkers among the words of a `.comment` section, each once.
fn tools(comment: &[u8]) -> (Vec<String>, Vec<String>) {
    let comment = &comment[..comment.len().min(COMMENT_MAX)];
    let words = comment.split(|&b| b == 0).filter(|word| !word.is_empty());
    let (mut compilers, mut linkers) = (Vec::new(), Vec::new());
    for word in words.map(String::from_utf8_lossy) {
        let linker = word.strip_prefix("Linker: ");
        let is_mold = word.starts_with("mold ");
        let list = if linker.is_some() || is_mold {
            &mut linkers
        } else {
            &mut compilers
        };
        let name = linker.unwrap_or(&word).to_owned();
        if !list.contains(&name) {
            list.push(name);
        }
    }
    (compilers, linkers)
}

#[cfg(test)]
mod tests;
