//! The files of the repository on disk.

use std::path::Path;

/// Generated folders.
const MADE: [&str; 4] = ["target", ".git", "mutants.out", "mutants.out.old"];

/// A file that can be read as text.
pub(crate) struct File {
    /// Path from the top of the repository, separated by `/`.
    pub(crate) path: String,
    /// The contents.
    pub(crate) text: String,
}

/// The top folder of the repository.
pub(crate) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The paths of all files, sorted.
pub(crate) fn paths() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![top().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository") {
            let entry = entry.expect("an entry of the folder");
            let kind = entry.file_type().expect("the kind of the entry");
            if kind.is_dir() && !MADE.iter().any(|made| entry.file_name() == *made) {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(relative(&entry.path()));
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    let below = path.strip_prefix(top()).expect("below the top");
    below.to_string_lossy().replace('\\', "/")
}

/// The text of the file at `path`; `None` if it is not text.
pub(crate) fn text(path: &str) -> Option<String> {
    let bytes = std::fs::read(top().join(path)).expect("a file of the repository");
    String::from_utf8(bytes).ok()
}

/// All files that end with `extension` and are text.
pub(crate) fn files(extension: &str) -> Vec<File> {
    let named = paths().into_iter().filter(|path| path.ends_with(extension));
    named
        .filter_map(|path| text(&path).map(|text| File { path, text }))
        .collect()
}
