//! Source lines of a file, from its DWARF: for listings of its code, and for editors.

use object::{Object as _, ObjectSection as _};
use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;
use unwind_sim_recordings::open;
use unwind_sim_unwind::image::{Image, SectionKind};

/// The largest file whose lines are read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// The size of the line programs of an image, bytes: each byte of them may be a row.
const LINE_BYTES_MAX: usize = 1 << 26;
/// The number of rows that are kept.
const ROWS_MAX: usize = 1 << 21;

/// Consecutive addresses of one line.
#[derive(Clone, Copy, Debug)]
struct Row {
    start: u64,
    end: u64,
    /// The index of the file.
    file: usize,
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
    /// The lines of a file. There are none if it has no DWARF, or DWARF that is compressed or broken.
    pub fn of(path: &Path) -> SourceLines {
        let bytes = open::read(path, FILE_BYTES_MAX).unwrap_or_default();
        SourceLines::read(&bytes, usize::MAX).unwrap_or_default()
    }

    /// The lines of the file that an image was read from. There are none if the image has only parts of
    /// it, as in a recording, or if they are very many.
    pub fn of_image(image: &Image) -> SourceLines {
        let mut texts = image.sections().iter();
        // The bytes of a section belong to the whole file, if the image was made from one.
        let elf = texts.find_map(|section| {
            let is_text = section.kind == SectionKind::Text;
            let bytes = (**section.data.owner()).as_ref();
            (is_text && bytes.starts_with(&object::elf::ELFMAG)).then_some(bytes)
        });
        elf.and_then(|elf| SourceLines::read(elf, LINE_BYTES_MAX))
            .unwrap_or_default()
    }

    fn read(bytes: &[u8], line_bytes_max: usize) -> Option<SourceLines> {
        let file = object::File::parse(bytes).ok()?;
        let programs = file.section_by_name(gimli::SectionId::DebugLine.name());
        let len = programs.and_then(|section| Some(section.data().ok()?.len()));
        if len.is_some_and(|len| len > line_bytes_max) {
            return None;
        }
        let section = |id: gimli::SectionId| {
            let section = file.section_by_name(id.name());
            let data = section.and_then(|section| section.data().ok());

            // For gimli, a section that is not there is an empty one.
            let data = data.unwrap_or_default();
            Ok::<_, gimli::Error>(gimli::EndianSlice::new(data, gimli::LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).ok()?;
        let context = addr2line::Context::from_dwarf(dwarf).ok()?;

        let mut lines = SourceLines::default();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (start, len, location) in context.find_location_range(0, u64::MAX).ok()? {
            // Some code is of no line, such as what a compiler adds.
            let (Some(name), Some(line)) = (location.file, location.line) else {
                continue;
            };

            // The file is not trusted: its line programs may give any number of rows.
            if lines.rows.len() >= ROWS_MAX {
                break;
            }
            let file = *known.entry(name.to_owned()).or_insert_with(|| {
                lines.files.push(name.to_owned());
                lines.files.len() - 1
            });
            let end = start.saturating_add(len);
            lines.rows.push(Row {
                start,
                end,
                file,
                line,
            });
        }

        // `at` needs them in this order, and compilation units need not be in the order of
        // addresses.
        lines.rows.sort_by_key(|row| (row.start, row.end));
        Some(lines)
    }

    /// The file and line of an address.
    pub fn at(&self, address: u64) -> Option<(&str, u32)> {
        let behind = self.rows.partition_point(|row| row.start <= address);
        let row = self.rows[..behind].last().filter(|row| address < row.end)?;
        // Line 0 is code of no line.
        (row.line > 0).then(|| (self.files[row.file].as_str(), row.line))
    }

    /// The first address of a line or, if it has no code, of the next one that has; and that line.
    /// `path` is that of the source file; another folder is good enough if no file matches wholly.
    pub fn address(&self, path: &str, line: u32) -> Option<(u64, u32)> {
        let wanted = Path::new(path);
        let is_same = |name: &String| Path::new(name) == wanted;
        let is_alike = |name: &String| Path::new(name).file_name() == wanted.file_name();
        let all = 0..self.files.len();
        let mut files: Vec<usize> = all.clone().filter(|&at| is_same(&self.files[at])).collect();
        if files.is_empty() {
            files = all.filter(|&at| is_alike(&self.files[at])).collect();
        }

        let rows = self.rows.iter();
        let behind = rows.filter(|row| files.contains(&row.file) && row.line >= line);
        let nearest = behind.min_by_key(|row| (row.line, row.start))?;
        Some((nearest.start, nearest.line))
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
