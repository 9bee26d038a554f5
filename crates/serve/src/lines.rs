//! Source lines of a program's file, from its DWARF, for editors. gdb reads them by itself.

use object::{Object as _, ObjectSection as _};
use std::collections::HashMap;
use std::path::Path;
use unwind_sim_recordings::open;

/// The largest file whose lines are read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
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
pub(crate) struct Lines {
    /// Ascending by address.
    rows: Vec<Row>,
    files: Vec<String>,
}

impl Lines {
    /// The lines of a file. There are none if it has no DWARF, or DWARF that is compressed or broken.
    pub(crate) fn of(path: &Path) -> Lines {
        let bytes = open::read(path, FILE_BYTES_MAX).unwrap_or_default();
        Lines::read(&bytes).unwrap_or_default()
    }

    fn read(bytes: &[u8]) -> Option<Lines> {
        let file = object::File::parse(bytes).ok()?;
        let section = |id: gimli::SectionId| {
            let section = file.section_by_name(id.name());
            let data = section.and_then(|section| section.data().ok());

            // For gimli, a section that is not there is an empty one.
            let data = data.unwrap_or_default();
            Ok::<_, gimli::Error>(gimli::EndianSlice::new(data, gimli::LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).ok()?;
        let context = addr2line::Context::from_dwarf(dwarf).ok()?;

        let mut lines = Lines::default();
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
    pub(crate) fn at(&self, address: u64) -> Option<(&str, u32)> {
        let behind = self.rows.partition_point(|row| row.start <= address);
        let row = self.rows[..behind].last().filter(|row| address < row.end)?;
        // Line 0 is code of no line.
        (row.line > 0).then(|| (self.files[row.file].as_str(), row.line))
    }

    /// The first address of a line or, if it has no code, of the next one that has; and that line.
    /// `path` is that of the source file; another folder is good enough if no file matches wholly.
    pub(crate) fn address(&self, path: &str, line: u32) -> Option<(u64, u32)> {
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
