//! Finds functions by name.

use std::ops::Range;
use unwind_sim_recordings::names::demangle;
use unwind_sim_recordings::similar::containing;
use unwind_sim_tables::file::File;
use unwind_sim_unwind::image::Symbol;

/// The addresses (svma) of all functions called `name`, mangled or not. A symbol without a size
/// stands for its first byte. If there is none, the names that contain `name`, or else the one that is
/// most like it.
pub fn ranges(file: &File, name: &str) -> Result<Vec<Range<u64>>, Vec<String>> {
    let symbols = file.image().symbols();
    let is_it = |s: &&Symbol| s.name == name || demangle(&s.name) == name;
    let range = |s: &Symbol| s.address..s.address.saturating_add(s.size.max(1));
    let found: Vec<_> = symbols.iter().filter(is_it).map(range).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names = symbols.iter().map(|s| demangle(&s.name));
    Err(containing(name, names))
}
