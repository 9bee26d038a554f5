//! Hostile ELF files, whose tables are converted and merged.
//!
//! Besides not panicking, a converted table says what its source says, also when it is converted
//! back, and the new file can be read.

use std::sync::Arc;
use unwind_sim_tables::convert::in_file::{ConvertedFile, InFileError, convert_in_file};
use unwind_sim_tables::convert::{Options, Target};
use unwind_sim_tables::file::File;
use unwind_sim_tables::merge::merge_in_file;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe::Version;

/// An ELF file: each of its tables is converted to every format, and back; its SFrame tables are
/// merged.
pub fn convert(data: &[u8]) {
    let Ok(file) = File::read("fuzzed", Arc::new(data.to_vec())) else {
        return;
    };
    for to in Target::ALL {
        for from in [None, Some(TableKind::Sframe), Some(TableKind::Orc)] {
            // The input has no room for an option, so its length decides.
            let share = data.len() % 2 == 1;
            let Some(written) = converted(&file, data, from, to, share) else {
                continue;
            };
            let new = Arc::new(written.bytes);
            let file = File::read("converted", new.clone()).expect("it can be read");
            let (kind, back) = (Some(to.kind()), Target::Sframe(Version::V3));
            converted(&file, &new, kind, back, false);
        }
    }
    if let Ok((bytes, merged)) = merge_in_file(&file, data) {
        File::read("merged", Arc::new(bytes)).expect("it can be read");
        assert!(merged.functions as u64 <= merged.rows, "{merged:?}");
    }
}

/// A conversion, if there is one; panics if the new table says something else.
fn converted(
    file: &File,
    data: &[u8],
    from: Option<TableKind>,
    to: Target,
    share: bool,
) -> Option<ConvertedFile> {
    let options = Options {
        to,
        from,
        from_orc: None,
        share,
        address: 0,
    };
    match convert_in_file(file, data, &options, true) {
        Ok(written) => Some(written),
        Err(error @ InFileError::Differs { .. }) => panic!("{from:?} to {}: {error}", to.as_str()),
        Err(_) => None,
    }
}
