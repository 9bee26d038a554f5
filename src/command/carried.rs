//! The cases of `corpus/cases` as `build.rs` packed them into this program.

use miniz_oxide::inflate::decompress_to_vec_with_limit;
use std::path::PathBuf;
use unwind_sim_judge::cases::carried::Files;

const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cases.deflate"));

/// The size up to which the cases are unpacked, in bytes; they have 0.3 MB.
const BYTES_MAX: usize = 16 << 20;

/// The files of `corpus/cases`.
pub(crate) fn load() -> Files {
    let bytes = decompress_to_vec_with_limit(PACKED, BYTES_MAX).expect("build.rs packed it");
    let text = String::from_utf8(bytes).expect("cases are text");
    // PATH NUL TEXT NUL, for each file.
    let mut parts = text.split('\0');
    let mut files = Files::new();
    while let (Some(path), Some(text)) = (parts.next(), parts.next()) {
        files.insert(PathBuf::from(path), text.to_owned());
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use unwind_sim_judge::case::Case;

    /// A debug build may carry older cases than the checkout has, so that these are not compared.
    #[test]
    fn every_case_is_carried_whole() {
        let files = load();
        assert!(files.contains_key(Path::new("prelude.inc")));
        let cases = files
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == "s"));
        let mut count = 0;
        for (path, text) in cases {
            let name = format!("corpus/cases/{}", path.display());
            Case::parse(&name, text).unwrap_or_else(|error| panic!("{name}: {error}"));
            count += 1;
        }
        assert!(count > 150, "{count} cases");
    }
}
