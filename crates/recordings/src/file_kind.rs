//! Detects what a file is, from its first bytes and its name, and names the subcommand for it.

use crate::open;
use crate::perf_directory::PerfDirectory;
use crate::printable::PrintableName as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// A capture of a kernel, as JSON.
    Capture,
    /// Output of a subcommand's `--json`.
    Lines,
    /// A test case.
    Case,
    /// A compressed Linux kernel (bzImage).
    Kernel,
    /// Compressed by gzip, xz, zstd or bzip2.
    Compressed,
    /// Any other text.
    Text,
    /// No bytes.
    Empty,
    /// A folder.
    Folder,
    /// A device, pipe or socket.
    Special,
    /// None of these.
    Unknown,
}

/// A file of a kind that the subcommand does not read.
#[derive(Debug, thiserror::Error)]
#[error("{} is {}, not {wanted}{}", path.printable(), kind.description(), kind.advice())]
pub struct WrongKind {
    /// The file.
    pub path: PathBuf,
    /// Its actual kind.
    pub kind: FileKind,
    /// What was expected, in words.
    pub wanted: &'static str,
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
    pub const ALL: [FileKind; 15] = [
        FileKind::Trace,
        FileKind::PerfData,
        FileKind::Core,
        FileKind::Bpf,
        FileKind::Elf,
        FileKind::Capture,
        FileKind::Lines,
        FileKind::Case,
        FileKind::Kernel,
        FileKind::Compressed,
        FileKind::Text,
        FileKind::Empty,
        FileKind::Folder,
        FileKind::Special,
        FileKind::Unknown,
    ];

    /// A description with its article, such as "a trace".
    pub const fn description(self) -> &'static str {
        match self {
            FileKind::Trace => "a trace",
            FileKind::PerfData => "a perf.data",
            FileKind::Core => "an ELF core",
            FileKind::Bpf => "a BPF object",
            FileKind::Elf => "an ELF program or library",
            FileKind::Capture => "a JSON file, such as a kernel capture",
            FileKind::Lines => "the --json output of unwind-sim",
            FileKind::Case => "a case",
            FileKind::Kernel => "a kernel image",
            FileKind::Compressed => "a compressed file",
            FileKind::Text => "a text file",
            FileKind::Empty => "an empty file",
            FileKind::Folder => "a folder",
            FileKind::Special => "not a regular file",
            FileKind::Unknown => "a file of an unknown kind",
        }
    }

    /// Which subcommand to use for such a file.
    const fn advice(self) -> &'static str {
        match self {
            FileKind::Trace => {
                "; `unwind-sim compare`, replay, explain, extract and inspect read it"
            }
            FileKind::PerfData => {
                "; `unwind-sim perf script` prints it, import, replay, compare and inspect read it"
            }
            FileKind::Core => "; `unwind-sim replay`, compare, import and inspect read it",
            FileKind::Bpf => "; `unwind-sim perf bpf` runs it",
            FileKind::Elf => {
                "; `unwind-sim inspect` shows its tables, record, verify and emulate run a program"
            }
            FileKind::Capture => {
                "; `unwind-sim compare`, replay, explain and import read a capture, with --kernel"
            }
            FileKind::Lines => {
                "; `unwind-sim report` shows that of verify and `tables check`, --baseline of compare \
                 and verify reads theirs"
            }
            FileKind::Case => "; `unwind-sim cases run`, compare, replay and verify take it",
            FileKind::Kernel => "; `unwind-sim inspect` shows it, --kernel takes it",
            FileKind::Compressed => "; decompress it first",
            FileKind::Text
            | FileKind::Empty
            | FileKind::Folder
            | FileKind::Special
            | FileKind::Unknown => "",
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
    let is_text = matches!(
        kind,
        FileKind::Empty | FileKind::Text | FileKind::Unknown | FileKind::Capture | FileKind::Lines
    );

    match has_name_of_case(path) && is_text {
        true => FileKind::Case,
        false => kind,
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
    const ET_CORE: u8 = 4;
    const EM_BPF: u8 = 247;
    const MAGICS: [&[u8]; 4] = [b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh"];
    const LINES: &[u8] = b"\"schema\":\"unwind-sim.";
    // In an ELF header, e_type is at 16 and e_machine at 18 (gABI).
    let field = |at: usize| head.get(at).copied();
    match head {
        [] => FileKind::Empty,
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => FileKind::PerfData,
        [0x7f, b'E', b'L', b'F', ..] if field(16) == Some(ET_CORE) => FileKind::Core,
        [0x7f, b'E', b'L', b'F', ..] if field(18) == Some(EM_BPF) => FileKind::Bpf,
        [0x7f, b'E', b'L', b'F', ..] => FileKind::Elf,
        _ if head.starts_with(&crate::trace::MAGIC) => FileKind::Trace,
        _ if head.trim_ascii_start().starts_with(b"{") => {
            match head.windows(LINES.len()).any(|w| w == LINES) {
                true => FileKind::Lines,
                false => FileKind::Capture,
            }
        }
        _ if crate::kernel::is_bzimage(head) => FileKind::Kernel,
        _ if MAGICS.iter().any(|magic| head.starts_with(magic)) => FileKind::Compressed,
        _ if is_text(head) => FileKind::Text,
        _ => FileKind::Unknown,
    }
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
        for (bytes, kind) in [
            (vec![], FileKind::Empty),
            (b"PERFILE2\0".to_vec(), FileKind::PerfData),
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
