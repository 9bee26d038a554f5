//! The files of a run: valid ones of the corpora and changed ones, in a folder that is made anew for
//! each run, and what of it a command changed.

use super::choices::Choices;
use super::values::Paths;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Files that are larger are not used: most time would go into copying them.
const BYTES_MAX: u64 = 64 << 10;
/// Files of a run.
const FILES: usize = 3;
/// Maximum number of changes to a file.
const CHANGES_MAX: usize = 8;
/// What the file holds that outputs may replace.
const EARLIER: &[u8] = b"what was here before\n";
/// A name that a terminal must not get.
const HOSTILE: &[u8] = b"in/\x1b]0;x\x07 \xe2\x80\xae\xff name";

/// The saved inputs of this target, which are not files of a run: a new one would change all runs.
const OWN: &str = "corpus/command_line";
/// The end of that name if a message shows it without escapes.
pub(super) const LOST: &str = "\u{fffd} name";
/// A copy of a run's first file, which is also its standard input.
pub(super) const FIRST: &str = "first";

/// Every file below a folder, with what it holds.
type FolderContents = BTreeMap<PathBuf, Vec<u8>>;

/// Files by kind, which is the name of their folder. A kind is drawn first, so that many files of one do
/// not hide the others.
pub(super) struct Pool(BTreeMap<OsString, Vec<PathBuf>>);

impl Pool {
    /// Collects the files of the corpora, in the same order on every machine.
    pub(super) fn new() -> io::Result<Pool> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut kinds = BTreeMap::new();
        for top in ["valid", "corpus"] {
            collect(&here.join(top), OsStr::new(top), &mut kinds)?;
        }
        kinds.values_mut().for_each(|files| files.sort());
        Ok(Pool(kinds))
    }

    /// A file of one of these kinds; of any if there are none.
    fn draw(&self, kinds: &[&str], choices: &mut Choices<'_>) -> io::Result<(&Path, Vec<u8>)> {
        let all: Vec<_> = self.0.iter().collect();
        let mut some = all.clone();
        some.retain(|(kind, _)| kinds.iter().any(|name| **kind == *name));
        let (_, files) = choices.one_of(if some.is_empty() { &all } else { &some });
        let path = choices.one_of(files);
        Ok((path, fs::read(path)?))
    }
}

/// The files below a folder. Cases are left out by their name, as the program knows them by it.
fn collect(
    folder: &Path,
    kind: &OsStr,
    kinds: &mut BTreeMap<OsString, Vec<PathBuf>>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Links into the corpora are followed; none leads back.
        let found = fs::metadata(&path)?;
        if path.ends_with(OWN) {
            continue;
        }
        if found.is_dir() {
            collect(&path, path.file_name().unwrap_or(kind), kinds)?;
        } else if found.len() <= BYTES_MAX && path.extension() != Some(OsStr::new("s")) {
            kinds.entry(kind.to_owned()).or_default().push(path);
        }
    }
    Ok(())
}

/// The folder of one run, which is the working folder.
pub(super) struct RunFolder {
    top: PathBuf,
    before: FolderContents,
}

impl RunFolder {
    /// Makes the folder `top` with files that `choices` draw, mostly of these kinds.
    pub(super) fn new(
        top: PathBuf,
        pool: &Pool,
        kinds: &[&str],
        choices: &mut Choices<'_>,
    ) -> io::Result<RunFolder> {
        // What an earlier run left must not change this one, or its input alone would not repeat
        // it.
        if top.exists() {
            fs::remove_dir_all(&top)?;
        }
        for folder in ["in", "out", "folder"] {
            fs::create_dir_all(top.join(folder))?;
        }

        let mut first = None;
        for number in 0..FILES {
            let name = format!("in/{number}");
            let kinds = if choices.rarely(4) { &[] } else { kinds };
            let (from, mut bytes) = pool.draw(kinds, choices)?;
            // The name's ending stays, since it says what some files are.
            let name = match from.extension() {
                Some(ending) if !choices.one_in(4) => {
                    format!("{name}.{}", ending.to_string_lossy())
                }
                _ => name,
            };
            if choices.one_in(3) {
                let (_, other) = pool.draw(&[], choices)?;
                change(&mut bytes, &other, choices);
            }
            let path = top.join(&name);
            fs::write(&path, bytes)?;

            // Executable: some commands run a file.
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
            first.get_or_insert(path);
        }

        // Names and kinds of files that a command may meet anywhere: hostile ones, links, a circle,
        // a FIFO, a file to replace.
        let first = first.ok_or(io::ErrorKind::NotFound)?;
        fs::copy(&first, top.join(FIRST))?;
        fs::copy(&first, top.join(OsStr::from_bytes(HOSTILE)))?;
        symlink(&first, top.join("folder/link"))?;
        symlink("circle", top.join("folder/circle"))?;
        fs::write(top.join("out/earlier"), EARLIER)?;
        mkfifo(&top.join("fifo"), Mode::S_IRWXU)?;

        // Taken last: it is what a run is compared with.
        let before = found_in(&top)?;
        Ok(RunFolder { top, before })
    }

    /// The paths whose file was changed, made or removed.
    pub(super) fn changed(&self) -> io::Result<Vec<PathBuf>> {
        let now = found_in(&self.top)?;
        let mut changed: Vec<PathBuf> = now
            .iter()
            .filter(|(path, bytes)| self.before.get(*path) != Some(bytes))
            .map(|(path, _)| path.clone())
            .collect();
        let gone = self.before.keys().filter(|path| !now.contains_key(*path));
        changed.extend(gone.cloned());
        Ok(changed)
    }

    /// The files that were drawn.
    fn inputs(&self) -> Vec<&Path> {
        let paths = self.before.keys();
        paths
            .filter(|p| p.starts_with("in"))
            .map(PathBuf::as_path)
            .collect()
    }
}

impl Paths for RunFolder {
    fn path(&self, is_output: bool, choices: &mut Choices<'_>) -> OsString {
        // Most paths are those that the command wants.
        let number = if choices.rarely(2) {
            choices.below(24)
        } else {
            0
        };

        let word: &[u8] = match (is_output, number) {
            (true, 0..10) => b"out/new",
            (true, 10..14) => b"out/earlier",
            (true, 14) => b"/dev/full",
            (_, 15) => b"missing",
            (_, 16) => b"missing/file",
            (_, 17) => b"folder",
            (_, 18) => b"folder/link",
            (_, 19) => b"folder/circle",
            (false, 20) => b"fifo",
            (false, 21) => b"-",
            (true, 20) => b"/dev/null",
            (true, 21) => b"folder/missing",
            (_, 22) => HOSTILE,
            (_, 23) => &[b'n'; 300],
            _ => return (*choices.one_of(&self.inputs())).into(),
        };

        OsStr::from_bytes(word).to_owned()
    }

    fn program(&self, choices: &mut Choices<'_>) -> OsString {
        let path = *choices.one_of(&self.inputs());
        Path::new(".").join(path).into()
    }
}

/// Every file below `top`, with what it holds.
fn found_in(top: &Path) -> io::Result<FolderContents> {
    let mut found = FolderContents::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(top.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                found.insert(path, fs::read(entry.path())?);
            } else {
                found.insert(path, Vec::new());
            }
        }
    }
    Ok(found)
}

/// Changes bytes, cuts, joins or empties.
fn change(bytes: &mut Vec<u8>, other: &[u8], choices: &mut Choices<'_>) {
    for _ in 0..=choices.below(CHANGES_MAX) {
        let at = choices.below(bytes.len());
        match choices.below(16) {
            0 => bytes.clear(),
            1 | 2 => bytes.truncate(at),
            3 => bytes.extend_from_slice(other),
            4 => drop(bytes.splice(..at, other.iter().copied())),
            5 => bytes.insert(at, choices.below(256) as u8),
            6 => {
                // A word as a length or an offset may be.
                let word = *choices.one_of(&[0, u64::MAX, 1 << 63, 1 << 31, 1 << 40, 0xffff_ffff]);
                let word = word.to_le_bytes();
                bytes
                    .iter_mut()
                    .skip(at)
                    .zip(word)
                    .for_each(|(to, byte)| *to = byte);
            }
            _ => {
                let byte = choices.below(256) as u8;
                bytes.get_mut(at).into_iter().for_each(|to| *to = byte);
            }
        }
    }
}
