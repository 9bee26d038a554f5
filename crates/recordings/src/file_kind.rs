//! The table of file kinds: what each is called, how it is known, which subcommands take it, and how it is
//! read as a recording. Detects what a file is, from its first bytes and its name.
//!
//! What is inside a file says its reader.

use crate::open;
use crate::perf_directory::PerfDirectory;
use crate::printable::PrintableName as _;
use std::borrow::Cow;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What a file is. The order is that of `KINDS`, which has a row for each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// A trace, this project's format.
    Trace,
    /// A perf.data, in file or pipe mode.
    PerfData,
    /// An ELF core.
    Core,
    /// An ELF object for the BPF machine.
    Bpf,
    /// Another ELF file.
    Elf,
    /// Output of a subcommand's `--json`.
    Lines,
    /// A capture of a kernel, as JSON.
    Capture,
    /// A test case.
    Case,
    /// A compressed Linux kernel (bzImage).
    Kernel,
    /// Compressed by gzip, xz, zstd, bzip2, lz4 or lzop.
    Compressed,
    /// Files in one: of `ar`, ZIP, or a package of Debian or RPM.
    Archive,
    /// A program, library or dump of another system: PE, Mach-O or minidump.
    Foreign,
    /// A folder.
    Folder,
    /// A device, pipe or socket.
    Special,
    /// No bytes.
    Empty,
    /// Any other text.
    Text,
    /// None of these.
    Unknown,
}

/// A row of the table.
struct Entry {
    kind: FileKind,
    /// What it is called where a file is one, with its article.
    description: &'static str,
    /// What it is called where one is wanted, if that is more.
    wanted: &'static str,
    /// Which subcommands take it, behind a description. The first is one that takes any such file.
    advice: &'static str,
    mark: Mark,
    reading: Reading,
    /// It may be a program that is run.
    may_run: bool,
    /// It may hold a kernel's image.
    may_be_kernel: bool,
}

/// How a kind is known.
enum Mark {
    /// By its first bytes, of which there are [`HEAD_BYTES`] at most.
    Bytes(fn(&[u8]) -> bool),
    /// By its first bytes, unless it has the name of a case, which is a text.
    Text(fn(&[u8]) -> bool),
    /// By its name; where it has none, by its claim.
    Name,
    /// It is not a file.
    Other,
}

/// How a kind is read as a recording.
#[derive(Clone, Copy)]
enum Reading {
    /// It is none.
    No,
    /// In place, as a trace.
    Trace,
    /// In place, by an importer, at each pass again. `import` writes it to a trace, whose engine has this
    /// name (`docs/trace-format.md`).
    Direct(&'static str),
    /// Through a temporary trace that an importer makes when it is opened, with such a name.
    Converted(&'static str),
    /// Its program is run.
    Run,
}

/// What most kinds are: known by their bytes, and neither a recording nor a program.
const PLAIN: Entry = Entry {
    kind: FileKind::Unknown,
    description: "",
    wanted: "",
    advice: "",
    mark: Mark::Other,
    reading: Reading::No,
    may_run: false,
    may_be_kernel: false,
};

/// The table of file kinds. The first whose mark fits is the kind of a file.
///
/// A new recording format needs a row here, one in the table of importers (`import/mod.rs`) and its own
/// folder beside that.
const KINDS: [Entry; FileKind::Unknown as usize + 1] = [
    Entry {
        kind: FileKind::Trace,
        description: "a trace",
        advice: "; `unwind-sim compare`, replay, explain, extract and inspect read it",
        mark: Mark::Bytes(|head| head.starts_with(&crate::trace::MAGIC)),
        reading: Reading::Trace,
        ..PLAIN
    },
    Entry {
        kind: FileKind::PerfData,
        description: "a perf.data",
        advice: "; `unwind-sim perf script` prints it, import, replay, compare and inspect read it",
        mark: Mark::Bytes(|head| head.starts_with(b"PERFILE2")),
        reading: Reading::Direct("perf.data"),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Core,
        description: "an ELF core",
        advice: "; `unwind-sim replay`, compare, import and inspect read it",
        // e_type of the ELF header: ET_CORE (gABI).
        mark: Mark::Bytes(|head| is_elf(head) && head.get(16) == Some(&4)),
        reading: Reading::Converted("core"),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Bpf,
        description: "a BPF object",
        advice: "; `unwind-sim perf bpf` runs it",
        // e_machine of the ELF header: EM_BPF (gABI).
        mark: Mark::Bytes(|head| is_elf(head) && head.get(18) == Some(&247)),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Elf,
        description: "an ELF program or library",
        advice: "; `unwind-sim inspect` shows its tables, record, verify and emulate run a program",
        mark: Mark::Bytes(is_elf),
        may_run: true,
        may_be_kernel: true,
        ..PLAIN
    },
    Entry {
        kind: FileKind::Lines,
        description: "the --json output of unwind-sim",
        advice: "; `unwind-sim report` shows that of verify and `tables check`, --baseline of compare \
                 and verify reads theirs",
        mark: Mark::Text(|head| {
            const SCHEMA: &[u8] = b"\"schema\":\"unwind-sim.";
            is_json(head) && head.windows(SCHEMA.len()).any(|bytes| bytes == SCHEMA)
        }),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Capture,
        description: "a JSON file, such as a kernel capture",
        wanted: "a kernel's capture (JSON)",
        advice: "; `unwind-sim compare`, replay, explain and import read a capture, with --kernel",
        mark: Mark::Text(is_json),
        reading: Reading::Converted("capture"),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Case,
        description: "a case",
        wanted: "a case (.s)",
        advice: "; `unwind-sim cases run`, compare, replay and verify take it",
        mark: Mark::Name,
        reading: Reading::Run,
        may_run: true,
        ..PLAIN
    },
    Entry {
        kind: FileKind::Kernel,
        description: "a kernel image",
        advice: "; `unwind-sim inspect` shows it, --kernel takes it",
        mark: Mark::Bytes(crate::kernel::is_bzimage),
        may_be_kernel: true,
        ..PLAIN
    },
    Entry {
        kind: FileKind::Compressed,
        description: "a compressed file",
        advice: "; decompress it first",
        mark: Mark::Bytes(|head| {
            const MAGICS: [&[u8]; 6] = [
                b"\x1f\x8b",
                b"\xfd7zXZ\0",
                b"\x28\xb5\x2f\xfd",
                b"BZh",
                b"\x04\x22\x4d\x18",
                b"\x89LZO\0\r\n\x1a\n",
            ];
            MAGICS.iter().any(|magic| head.starts_with(magic))
        }),
        may_be_kernel: true,
        ..PLAIN
    },
    Entry {
        kind: FileKind::Archive,
        description: "an archive or a package",
        advice: "; unpack it first (`ar x`, `unzip`, `dpkg-deb -x`, `rpm2cpio`), and name the file in it",
        mark: Mark::Bytes(|head| {
            // ar(5), of which a .deb is one, and its thin form; PKZIP's local header; an RPM's lead.
            const MAGICS: [&[u8]; 4] = [
                b"!<arch>\n",
                b"!<thin>\n",
                b"PK\x03\x04",
                b"\xed\xab\xee\xdb",
            ];
            MAGICS.iter().any(|magic| head.starts_with(magic))
        }),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Foreign,
        description: "a file of another system (PE, Mach-O or a minidump)",
        advice: "; programs and cores are read as ELF, the format of Linux",
        mark: Mark::Bytes(|head| {
            // Mach-O (`mach-o/loader.h`, `mach-o/fat.h`), in both byte orders, and minidumps.
            const MAGICS: [&[u8]; 5] = [
                b"\xcf\xfa\xed\xfe",
                b"\xce\xfa\xed\xfe",
                b"\xca\xfe\xba\xbe",
                b"\xca\xfe\xba\xbf",
                b"MDMP",
            ];
            // `e_lfanew` of the DOS header leads to the PE header, which is behind it.
            let is_pe = head.starts_with(b"MZ") && head.get(0x3c).is_some_and(|&at| at >= 0x40);
            is_pe || MAGICS.iter().any(|magic| head.starts_with(magic))
        }),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Folder,
        description: "a folder",
        ..PLAIN
    },
    Entry {
        kind: FileKind::Special,
        description: "not a regular file",
        ..PLAIN
    },
    Entry {
        kind: FileKind::Empty,
        description: "an empty file",
        mark: Mark::Text(<[u8]>::is_empty),
        ..PLAIN
    },
    Entry {
        kind: FileKind::Text,
        description: "a text file",
        mark: Mark::Text(is_text),
        may_run: true,
        ..PLAIN
    },
    Entry {
        kind: FileKind::Unknown,
        description: "a file of an unknown kind",
        mark: Mark::Text(|_| true),
        may_run: true,
        ..PLAIN
    },
];

// Each row is at the number of its kind.
const _: () = {
    let mut row = 0;
    while row < KINDS.len() {
        assert!(KINDS[row].kind as usize == row);
        row += 1;
    }
};

/// A file of a kind that the subcommand does not read.
#[derive(Debug, thiserror::Error)]
#[error("{} is {}, not {wanted}{}", path.printable(), kind.description(), kind.advice())]
pub struct WrongKind {
    /// The file.
    pub path: PathBuf,
    /// Its actual kind.
    pub kind: FileKind,
    /// What was expected, in words.
    pub wanted: Cow<'static, str>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.printable())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is of another kind.
    #[error(transparent)]
    Wrong(#[from] WrongKind),
}

impl FileKind {
    /// Every kind.
    pub const ALL: [FileKind; KINDS.len()] = {
        let mut all = [FileKind::Unknown; KINDS.len()];
        let mut row = 0;
        while row < KINDS.len() {
            all[row] = KINDS[row].kind;
            row += 1;
        }
        all
    };

    const fn row(self) -> &'static Entry {
        const ROWS: &[Entry] = &KINDS;
        &ROWS[self as usize]
    }

    /// A description with its article, such as "a trace".
    pub const fn description(self) -> &'static str {
        self.row().description
    }

    /// Which subcommand to use for such a file.
    const fn advice(self) -> &'static str {
        self.row().advice
    }

    /// What it is called where one is wanted.
    fn wanted(self) -> &'static str {
        let row = self.row();
        match row.wanted {
            "" => row.description,
            wanted => wanted,
        }
    }

    /// Whether `replay`, `compare` and the like read it.
    pub const fn is_recording(self) -> bool {
        !matches!(self.row().reading, Reading::No)
    }

    /// Whether it is a recording that was made before, and so holds a program's data; a case is run.
    pub const fn is_recorded(self) -> bool {
        self.is_recording() && !matches!(self.row().reading, Reading::Run)
    }

    /// Whether it is imported: it has a row in the table of importers.
    pub const fn is_imported(self) -> bool {
        self.engine().is_some()
    }

    /// Whether it is read through a trace that is made of it.
    pub const fn is_converted(self) -> bool {
        matches!(self.row().reading, Reading::Converted(_))
    }

    /// The name of the engine of a trace that was imported from it.
    pub const fn engine(self) -> Option<&'static str> {
        match self.row().reading {
            Reading::Direct(name) | Reading::Converted(name) => Some(name),
            Reading::No | Reading::Trace | Reading::Run => None,
        }
    }

    /// Whether it may be a program. Only running it says whether it is.
    pub const fn may_run(self) -> bool {
        self.row().may_run
    }

    /// Whether it may be the image of a kernel. Only opening it as one says whether it is.
    pub const fn may_be_kernel(self) -> bool {
        self.row().may_be_kernel
    }

    /// The kinds that are so, as one wants them: "a trace, a perf.data or an ELF core".
    pub fn list(is: fn(FileKind) -> bool) -> String {
        let kinds = FileKind::ALL.into_iter().filter(|&kind| is(kind));
        let names: Vec<&str> = kinds.map(FileKind::wanted).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, before)) => format!("{} or {last}", before.join(", ")),
            None => String::new(),
        }
    }
}

/// How many first bytes of a file say its kind. The signature of a bzImage is the one farthest from the
/// start.
pub(crate) const HEAD_BYTES: u64 = 0x206;

/// Detects the kind of the file at `path`, without reading it: for a file that is not an input itself, such
/// as a program that is run, or one of a folder's many. What is to be read is opened as an
/// [`InputFile`](crate::input_file::InputFile), which has its kind.
///
/// # Errors
/// If the file cannot be opened.
pub fn file_kind(path: &Path) -> io::Result<FileKind> {
    let metadata = std::fs::metadata(path)?;

    // Opening a pipe could block until there is a writer.
    if metadata.is_dir() {
        return Ok(match PerfDirectory::open(path) {
            Some(_) => FileKind::PerfData,
            None => FileKind::Folder,
        });
    }

    if !metadata.is_file() {
        return Ok(FileKind::Special);
    }

    let mut head = Vec::new();
    let (file, _) = open::file(path)?;
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(of_file(path, &head))
}

/// The kind of a file with this path and these first bytes.
pub(crate) fn of_file(path: &Path, head: &[u8]) -> FileKind {
    let kind = by_bytes(head);
    // A program may have any name; a case is known by nothing else.
    if has_name_of_case(path) && matches!(kind.row().mark, Mark::Text(_)) {
        FileKind::Case
    } else {
        kind
    }
}

/// The kind of what comes through a pipe, by its first bytes. A case is known by its claim, which each has,
/// since a pipe has no name.
pub(crate) fn of_pipe(head: &[u8]) -> FileKind {
    const CLAIM: &[u8] = b"#! claim:";
    let is_claimed = head
        .split(|&byte| byte == b'\n')
        .any(|line| line.starts_with(CLAIM));
    match by_bytes(head) {
        FileKind::Text if is_claimed => FileKind::Case,
        kind => kind,
    }
}

/// Whether a path is one that a case has.
pub fn has_name_of_case(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "s")
}

/// Whether the file at `path` is a case: by its name, unless its first bytes are those of another kind,
/// such as ELF. True for a name without a file, which may be that of a case in the program.
pub fn is_case(path: &Path) -> bool {
    has_name_of_case(path) && file_kind(path).map_or(true, |kind| kind == FileKind::Case)
}

fn by_bytes(head: &[u8]) -> FileKind {
    let fits = |entry: &&Entry| match entry.mark {
        Mark::Bytes(is) | Mark::Text(is) => is(head),
        Mark::Name | Mark::Other => false,
    };
    let found = KINDS.iter().find(fits);
    found.map_or(FileKind::Unknown, |entry| entry.kind)
}

fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

fn is_json(head: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(b"{")
}

/// Is this the start of a text? Its last character may be cut off.
fn is_text(head: &[u8]) -> bool {
    let whole = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let odd = |c: char| c.is_control() && !c.is_ascii_whitespace() && c != '\x1b';
    !whole.contains(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program may be named x.s; a case has no first bytes of its own.
    #[test]
    fn the_first_bytes_decide_before_the_name() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("unwind-sim-kind-{}.s", std::process::id()));
        let kind = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("writable");
            (file_kind(&path).expect("readable"), is_case(&path))
        };
        let mut elf = [0; 64];
        elf[..4].copy_from_slice(b"\x7fELF");
        assert_eq!(kind(&elf), (FileKind::Elf, false));
        elf[16] = 4;
        assert_eq!(kind(&elf), (FileKind::Core, false));
        assert_eq!(kind(b"PERFILE2\0"), (FileKind::PerfData, false));
        assert_eq!(kind(&crate::trace::MAGIC), (FileKind::Trace, false));
        for text in [&b""[..], b"#! claim: A case.", b"{", b"\xff"] {
            assert_eq!(kind(text), (FileKind::Case, true), "{text:?}");
        }
        std::fs::remove_file(&path).expect("it is there");
        // One that the program carries has no file.
        assert!(is_case(&path) && !is_case(&folder.join("no-file")));
    }

    #[test]
    fn files_are_known_by_their_first_bytes() {
        let elf = |at: usize, value: u8| {
            let mut head = [0; 64];
            head[..4].copy_from_slice(b"\x7fELF");
            head[at] = value;
            head.to_vec()
        };
        // A DOS header, which says at 0x3c where the PE header is.
        let dos = |at: u8| {
            let mut head = vec![0; 64];
            head[..2].copy_from_slice(b"MZ");
            head[0x3c] = at;
            head
        };
        for (bytes, kind) in [
            (vec![], FileKind::Empty),
            (b"PERFILE2\0".to_vec(), FileKind::PerfData),
            // At 16 is e_type, 4 for a core; at 18 e_machine, 247 for BPF (gABI).
            (elf(16, 4), FileKind::Core),
            (elf(16, 2), FileKind::Elf),
            (elf(18, 247), FileKind::Bpf),
            (b"\x7fELF".to_vec(), FileKind::Elf),
            (b" {\"a\": 1}".to_vec(), FileKind::Capture),
            (
                b"{\"type\":\"column\",\"schema\":\"unwind-sim.v1\"}".to_vec(),
                FileKind::Lines,
            ),
            (b"\x1f\x8b\x08".to_vec(), FileKind::Compressed),
            (b"\x04\x22\x4d\x18\x64".to_vec(), FileKind::Compressed),
            (b"!<arch>\n/  ".to_vec(), FileKind::Archive),
            (b"PK\x03\x04\x14".to_vec(), FileKind::Archive),
            (b"MDMP\x93\xa7".to_vec(), FileKind::Foreign),
            (b"\xcf\xfa\xed\xfe\x07".to_vec(), FileKind::Foreign),
            (dos(0x80), FileKind::Foreign),
            // A DOS program has its entry point's segment there, or nothing.
            (dos(0), FileKind::Unknown),
            ("text, \u{e9}".as_bytes().to_vec(), FileKind::Text),
            // The last character is cut off.
            (b"text \xc3".to_vec(), FileKind::Text),
            (b"\xff\xfe\0".to_vec(), FileKind::Unknown),
        ] {
            assert_eq!(by_bytes(&bytes), kind, "{bytes:?}");
        }
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let null = file_kind(Path::new("/dev/null")).expect("it is there");
        assert_eq!(null, FileKind::Special);
        let folder = file_kind(&std::env::temp_dir()).expect("it is there");
        assert_eq!(folder, FileKind::Folder);
    }
}
