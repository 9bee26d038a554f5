//! Source lines of a file, from its DWARF: for listings of its code, and for editors.

use object::{CompressionFormat, Object as _, ObjectSection as _};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_recordings::files::{FinderOptions, debug_file_of};
use unwind_sim_recordings::open;
use unwind_sim_tables::file::File;
use unwind_sim_unwind::elf::{Compression, unpack};
use unwind_sim_unwind::image::{Image, Owner, SectionKind};

/// The largest file whose lines are read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The size of the line programs of an image, bytes: each byte of them may be a row.
const LINE_BYTES_MAX: usize = 1 << 26;
/// The size of all compressed sections of a file together when they are unpacked, bytes.
const UNPACKED_BYTES_MAX: u64 = 1 << 28;
/// The number of rows that are kept.
const ROWS_MAX: usize = 1 << 21;

/// Consecutive addresses of one line.
#[derive(Clone, Copy, Debug)]
struct Row {
    start: u64,
    end: u64,
    /// The index of the file.
    file: u32,
    line: u32,
}

/// The source lines of a file; addresses are the file's own.
#[derive(Default, Debug)]
pub struct SourceLines {
    /// Ascending by address.
    rows: Vec<Row>,
    files: Vec<String>,
}

impl SourceLines {
    /// The lines of the file at a path, or of its separate debug file. There are none if neither has DWARF,
    /// or if it is broken.
    pub fn of(path: &Path) -> SourceLines {
        let owner: Owner = Arc::new(open::read(path, FILE_BYTES_MAX).unwrap_or_default());
        SourceLines::of_elf(&owner, path)
    }

    /// The lines of a file whose tables are read, or of its separate debug file.
    pub fn of_file(file: &File) -> SourceLines {
        // What is not linked has no addresses yet: those that its tables have are put in.
        if file.is_relocatable() {
            let sections = file.debug_sections(|name| SECTIONS.iter().any(|id| id.name() == name));
            let sections = sections.map(Sections::relocated);
            return sections.and_then(|all| all.lines()).unwrap_or_default();
        }
        match file.owner() {
            Some(owner) => SourceLines::of_elf(owner, Path::new(file.name())),
            None => SourceLines::default(),
        }
    }

    /// The lines of the ELF file `owner`, or of the separate debug file that belongs to it.
    fn of_elf(owner: &Owner, path: &Path) -> SourceLines {
        let own = SourceLines::read((**owner).as_ref(), usize::MAX);
        own.or_else(|| {
            let debug = debug_file_of(owner, path, &FinderOptions::system())?;
            SourceLines::read((*debug).as_ref(), usize::MAX)
        })
        .unwrap_or_default()
    }

    /// The lines of the file that an image was read from, or of its separate debug file. There are none if
    /// the image has only parts of it, as in a recording, or if they are very many.
    pub fn of_image(image: &Image) -> SourceLines {
        let mut texts = image.sections().iter();
        // The bytes of a section belong to the whole file, if the image was made from one.
        let elf = texts.find_map(|section| {
            let is_text = section.kind == SectionKind::Text;
            let bytes = (**section.data.owner()).as_ref();
            (is_text && bytes.starts_with(&object::elf::ELFMAG)).then_some(bytes)
        });
        let files = [elf, image.debug_file()];
        let mut lines = files
            .into_iter()
            .flatten()
            .filter_map(|elf| SourceLines::read(elf, LINE_BYTES_MAX));
        lines.next().unwrap_or_default()
    }

    /// `None` if the file has no lines.
    fn read(bytes: &[u8], line_bytes_max: usize) -> Option<SourceLines> {
        Sections::of(bytes, line_bytes_max)?.lines()
    }

    /// The file and line of an address.
    pub fn at(&self, address: u64) -> Option<(&str, u32)> {
        let behind = self.rows.partition_point(|row| row.start <= address);
        let row = self.rows[..behind].last().filter(|row| address < row.end)?;
        // Line 0 is code of no line.
        (row.line > 0).then(|| (self.files[row.file as usize].as_str(), row.line))
    }

    /// The first address of a line or, if it has no code, of the next one that has; and that line.
    /// `path` is that of the source file; another folder is good enough if no file matches wholly.
    pub fn address(&self, path: &str, line: u32) -> Option<(u64, u32)> {
        let wanted = Path::new(path);
        let is_same = |name: &String| Path::new(name) == wanted;
        let is_alike = |name: &String| Path::new(name).file_name() == wanted.file_name();
        let all = || (0..).zip(&self.files);
        let those = |is: &dyn Fn(&String) -> bool| {
            let found = all().filter(|(_, name)| is(name));
            found.map(|(at, _)| at).collect::<Vec<u32>>()
        };
        let mut files = those(&is_same);
        if files.is_empty() {
            files = those(&is_alike);
        }

        let rows = self.rows.iter();
        let behind = rows.filter(|row| files.contains(&row.file) && row.line >= line);
        let nearest = behind.min_by_key(|row| (row.line, row.start))?;
        Some((nearest.start, nearest.line))
    }
}

/// The sections that source lines are read from.
const SECTIONS: [gimli::SectionId; 10] = [
    gimli::SectionId::DebugAbbrev,
    gimli::SectionId::DebugAddr,
    gimli::SectionId::DebugAranges,
    gimli::SectionId::DebugInfo,
    gimli::SectionId::DebugLine,
    gimli::SectionId::DebugLineStr,
    gimli::SectionId::DebugRanges,
    gimli::SectionId::DebugRngLists,
    gimli::SectionId::DebugStr,
    gimli::SectionId::DebugStrOffsets,
];

/// The sections of a file by name, unpacked.
struct Sections<'a>(BTreeMap<&'static str, Cow<'a, [u8]>>);

impl<'a> Sections<'a> {
    /// Those of an ELF file. `None` if it has no lines, or too many.
    fn of(bytes: &'a [u8], line_bytes_max: usize) -> Option<Sections<'a>> {
        let file = object::File::parse(bytes).ok()?;
        let mut left = UNPACKED_BYTES_MAX;
        let mut all = BTreeMap::new();
        for name in SECTIONS.map(|id| id.name()) {
            let Some(section) = file.section_by_name(name) else {
                continue;
            };
            let packed = section.compressed_data().ok()?;
            let compression = match packed.format {
                CompressionFormat::Zlib => Some(Compression::Zlib),
                CompressionFormat::Zstandard => Some(Compression::Zstd),
                CompressionFormat::None => None,
                _ => return None,
            };
            let data = match compression {
                None => Cow::Borrowed(packed.data),
                Some(compression) => {
                    let data = unpack::unpack_at_most(compression, packed.data, left).ok()?;
                    left -= data.len() as u64;
                    Cow::Owned(data)
                }
            };
            all.insert(name, data);
        }
        let lines = all.get(gimli::SectionId::DebugLine.name());
        let len = lines.map_or(0, |lines| lines.len());
        (len > 0 && len <= line_bytes_max).then_some(Sections(all))
    }

    /// Those of an object that is not linked.
    fn relocated(mut all: BTreeMap<String, Vec<u8>>) -> Sections<'a> {
        let named = SECTIONS.into_iter().filter_map(|id| {
            let data = all.remove(id.name())?;
            Some((id.name(), Cow::Owned(data)))
        });
        Sections(named.collect())
    }

    /// The lines that they hold.
    fn lines(&self) -> Option<SourceLines> {
        let section = |id: gimli::SectionId| {
            // For gimli, a section that is not there is an empty one.
            let data = self.0.get(id.name()).map_or(&[][..], |data| &data[..]);
            Ok::<_, gimli::Error>(gimli::EndianSlice::new(data, gimli::LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).ok()?;
        let context = addr2line::Context::from_dwarf(dwarf).ok()?;

        let mut lines = SourceLines::default();
        let mut known: HashMap<String, u32> = HashMap::new();
        for (start, len, location) in context.find_location_range(0, u64::MAX).ok()? {
            // Some code is of no line, such as what a compiler adds.
            let (Some(name), Some(line)) = (location.file, location.line) else {
                continue;
            };

            // The file is not trusted: its line programs may give any number of rows.
            if lines.rows.len() >= ROWS_MAX {
                break;
            }
            let file = match known.get(name) {
                Some(file) => *file,
                None => {
                    // Fewer than rows.
                    let file = lines.files.len() as u32;
                    lines.files.push(name.to_owned());
                    known.insert(name.to_owned(), file);
                    file
                }
            };

            // Each statement has rows of its own, of which only the first matters here.
            let end = start.saturating_add(len);
            match lines.rows.last_mut() {
                Some(last) if (last.end, last.file, last.line) == (start, file, line) => {
                    last.end = end;
                }
                _ => lines.rows.push(Row {
                    start,
                    end,
                    file,
                    line,
                }),
            }
        }

        // `at` needs them in this order, and compilation units need not be in the order of
        // addresses.
        lines.rows.sort_by_key(|row| (row.start, row.end));
        Some(lines)
    }
}

/// The number of bytes of a source file that are read, at most.
const TEXT_BYTES_MAX: u64 = 1 << 21;
/// The number of source files that are kept.
const TEXTS_MAX: usize = 16;

/// The texts of source files, where they are found.
#[derive(Default, Debug)]
pub struct SourceTexts {
    known: HashMap<String, Vec<String>>,
}

impl SourceTexts {
    /// The text of a line, without the space around it; `None` if it has none, or if the file is not at
    /// its path.
    pub fn line(&mut self, path: &str, number: u32) -> Option<&str> {
        if !self.known.contains_key(path) {
            if self.known.len() >= TEXTS_MAX {
                self.known.clear();
            }
            self.known.insert(path.to_owned(), read_source(path));
        }
        let lines = self.known.get(path)?;
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let text = lines.get(index)?.trim();
        (!text.is_empty()).then_some(text)
    }
}

/// The lines of a source file. None if it is not a file, or is not text.
fn read_source(path: &str) -> Vec<String> {
    // The path is what the program's file says: what is not an ordinary file must not be waited for.
    let Ok((file, _)) = open::file(Path::new(path)) else {
        return Vec::new();
    };
    let mut text = String::new();
    match file.take(TEXT_BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => text.lines().map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}
