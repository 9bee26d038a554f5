//! By whom and with which compiler code was made, and how it is to be built instead.

use super::kind::Kind;
use std::fmt;

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
}

/// The language of code, as far as it matters for what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Language {
    /// Compiled by GCC.
    Gcc,
    /// Compiled by clang.
    Clang,
    /// Compiled by rustc.
    Rust,
    /// Compiled by Go's own compiler.
    Go,
    /// Compiled by OCaml's native compiler.
    Ocaml,
    /// Compiled by GHC.
    Haskell,
    /// Compiled by LDC, the D compiler of LLVM.
    Ldc,
    /// Compiled by Free Pascal.
    Pascal,
    /// The file does not say.
    #[default]
    Unknown,
}

impl Language {
    /// The language by the words of a producer or of `.comment`.
    pub(super) fn of(words: &str) -> Language {
        let signs = [
            ("rustc", Language::Rust),
            ("Go cmd/compile", Language::Go),
            ("clang", Language::Clang),
            ("GCC: ", Language::Gcc),
            ("GNU C", Language::Gcc),
            ("GNU Fortran", Language::Gcc),
            ("GNU GIMPLE", Language::Gcc),
            ("GNU Ada", Language::Gcc),
            ("GNU D", Language::Gcc),
            ("LDC ", Language::Ldc),
            ("ldc version", Language::Ldc),
            ("Free Pascal", Language::Pascal),
        ];
        let found = signs.into_iter().find(|(sign, _)| words.contains(sign));
        found.map_or(Language::Unknown, |(_, language)| language)
    }
}

/// Who wrote the code at a place, in which language, and with which compiler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    pub(super) author: Author,
    pub(super) language: Language,
    /// `DW_AT_producer` of its unit.
    pub(super) producer: Option<String>,
    /// The name of its separate debug file (`.gnu_debuglink`), if no debug information was found.
    pub(super) debug_file: Option<String>,
}

impl Origin {
    /// An author of whom nothing else is known.
    pub(super) fn by(author: Author) -> Origin {
        Origin {
            author,
            language: Language::Unknown,
            producer: None,
            debug_file: None,
        }
    }

    /// How to build it with frame pointers; `only_leaves` if just the innermost functions of the stacks
    /// lack them.
    pub(super) fn frame_pointers(&self, only_leaves: bool) -> &'static str {
        let has = self.producer.as_ref();
        let has = has.is_some_and(|p| p.contains("-fno-omit-frame-pointer"));
        match self.language {
            Language::Rust => {
                "build it with `-C force-frame-pointers=yes` (RUSTFLAGS), and the \
                           standard library with -Z build-std"
            }
            Language::Go => {
                "Go's compiler gives functions with a frame a frame pointer; its assembly \
                         and functions without a frame have none"
            }
            Language::Ocaml => {
                "use a compiler that was configured with --enable-frame-pointers (opam: \
             ocaml-option-fp)"
            }
            Language::Haskell => {
                "none: rbp is the stack pointer of GHC's code, and the rows that `ghc -g` writes end before \
             their functions do (9.0.2)"
            }
            Language::Ldc => "build it with --frame-pointer=all",
            Language::Pascal => {
                "build it with -OoNOSTACKFRAME, and the run-time library, too (Free Pascal)"
            }
            // GCC 12 leaves it out of leaf functions that do not touch the stack even so.
            Language::Gcc | Language::Unknown if only_leaves || has => {
                "build it with -mno-omit-leaf-frame-pointer as well (GCC may still omit it where a \
             function does not use the stack)"
            }
            Language::Gcc | Language::Clang => {
                "build it with -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer"
            }
            Language::Unknown => {
                "build it with frame pointers (GCC and clang: -fno-omit-frame-pointer \
             -mno-omit-leaf-frame-pointer)"
            }
        }
    }

    /// How to build it with the rows that it lacks: all, or some ([`Kind::NoRow`]).
    pub(super) fn rows(&self, kind: Kind) -> String {
        match (&self.author, self.language) {
        (Author::Assembly(file), _) => format!("its author must write .cfi directives in {file}"),
        (Author::Linker, _) => {
            "link it with GNU ld and --ld-generated-unwind-info; LLD and mold write no rows for this code"
                .into()
        }
        (Author::Kernel, _) => "a newer kernel may have the row".into(),
        (_, Language::Rust) if kind == Kind::NoRow => {
            "a naked function needs `.cfi_startproc` and the other directives in `naked_asm!`, by its \
             author; other code has rows unless `-C force-unwind-tables=no` leaves them out"
                .into()
        }
        (_, Language::Rust) => "build it with `-C force-unwind-tables=yes`".into(),
        (_, Language::Go) => {
            "Go writes its rows into .debug_frame: link without -w and do not strip it".into()
        }
        (_, Language::Haskell) => {
            "none: the rows that `ghc -g` writes end before their functions do (9.0.2)".into()
        }
        (_, Language::Pascal) => {
            "the FDEs that Free Pascal writes with -gw (3.2.2) have a CIE pointer of 8 bytes, which no \
             reader expects: build it with -OoNOSTACKFRAME, and record with `--call-graph fp`"
                .into()
        }
        (_, Language::Ocaml) => "ocamlopt writes rows: do not strip the file".into(),
        // Where other functions of the file have rows, the compiler was not told to leave them out.
        (Author::Unknown(_), language)
            if kind == Kind::NoRow || language == Language::Unknown =>
        {
            "if it was written in assembly, its author must write .cfi directives; otherwise build it \
             with unwind tables (GCC and clang: -fasynchronous-unwind-tables)"
                .into()
        }
        _ => "build it with -fasynchronous-unwind-tables".into(),
    }
    }
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
