//! Cases that the program carries with it, for where there is no checkout.
//!
//! They have the paths that they have in a checkout, `corpus/cases/GROUP/NAME.s`, and are there only
//! where the working folder has no `corpus/cases`. Not here: how the program stores them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use unwind_sim_recordings::input_file::InputFile;

/// The folder of the cases in a checkout.
pub const FOLDER: &str = "corpus/cases";

/// The texts of files, by their path below [`FOLDER`].
pub type Files = BTreeMap<PathBuf, String>;

static LOAD: OnceLock<fn() -> Files> = OnceLock::new();
static FILES: OnceLock<Files> = OnceLock::new();

/// Gives this process the files that its program carries. `load` is called when one is needed.
pub fn carry(load: fn() -> Files) {
    // Only a program calls this, and only once; the first files stay.
    let _ = LOAD.set(load);
}

/// Whether cases below [`FOLDER`] are those that the program carries.
pub fn are_used() -> bool {
    files().is_some()
}

fn files() -> Option<&'static Files> {
    let load = LOAD.get()?;
    if Path::new(FOLDER).is_dir() {
        return None;
    }
    Some(FILES.get_or_init(load))
}

/// The path below [`FOLDER`] of a path as users write it.
fn below(path: &Path) -> Option<&Path> {
    let path = path.strip_prefix(".").unwrap_or(path);
    path.strip_prefix(FOLDER).ok()
}

/// The text of the carried file at `path`, if it is one.
fn text(path: &Path) -> Option<&'static str> {
    Some(files()?.get(below(path)?)?)
}

/// The carried file at `path` as an input, if it is one.
pub(crate) fn input(path: &Path) -> Option<InputFile> {
    Some(InputFile::held(path, Arc::new(text(path)?)))
}

/// The paths of the carried cases at or below `folder`, sorted, if it is a folder of them.
pub(super) fn find(folder: &Path) -> Option<Vec<PathBuf>> {
    let folder = below(folder)?;
    let is_case = |path: &&PathBuf| path.extension().is_some_and(|e| e == "s");
    let paths = files()?.keys().filter(|path| path.starts_with(folder));
    let found = paths
        .filter(is_case)
        .map(|path| Path::new(FOLDER).join(path));
    Some(found.collect())
}

/// Writes the carried case at `path`, and what it may include, below `folder`. Returns the path of
/// the copy, or `None` if no such case is carried.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn copy(path: &Path, folder: &Path) -> io::Result<Option<PathBuf>> {
    let (Some(files), Some(case)) = (files(), below(path)) else {
        return Ok(None);
    };
    let Some(text) = files.get(case) else {
        return Ok(None);
    };

    let top = folder.join(FOLDER);
    let copy = top.join(case);
    std::fs::create_dir_all(copy.parent().unwrap_or(&top))?;
    std::fs::write(&copy, text)?;
    copy_includes(files, &top)?;
    Ok(Some(copy))
}

/// Writes what a case without a folder may include into `folder`, and returns where it is: the carried
/// files, or those of the checkout.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn includes(folder: &Path) -> io::Result<PathBuf> {
    match files() {
        Some(files) => copy_includes(files, folder).map(|()| folder.to_owned()),
        None => Ok(FOLDER.into()),
    }
}

fn copy_includes(files: &Files, folder: &Path) -> io::Result<()> {
    for (name, text) in files {
        if name.extension().is_some_and(|e| e == "inc") {
            std::fs::write(folder.join(name), text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_checkout_are_known() {
        let case = Path::new("frame/a.s");
        assert_eq!(below(Path::new("corpus/cases/frame/a.s")), Some(case));
        assert_eq!(below(Path::new("./corpus/cases/frame/a.s")), Some(case));
        assert_eq!(below(Path::new("corpus/cases")), Some(Path::new("")));
        assert_eq!(below(Path::new("frame/a.s")), None);
        assert_eq!(below(Path::new("/corpus/cases/frame/a.s")), None);
    }

    /// This crate's own folder has a `corpus/cases`, so nothing is carried here.
    #[test]
    fn a_corpus_in_the_working_folder_is_used() {
        carry(|| Files::from([("frame/a.s".into(), String::new())]));
        assert!(!are_used());
        assert_eq!(text(Path::new("corpus/cases/frame/a.s")), None);
        assert_eq!(find(Path::new(FOLDER)), None);
    }
}
