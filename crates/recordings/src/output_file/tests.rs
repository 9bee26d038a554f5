//! What happens to an existing file, and to an output.

use super::*;
use std::path::PathBuf;

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = format!("unwind-sim-output-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn the_earlier_file_stays_until_the_new_one_is_whole() {
    let folder = Folder::new("whole");
    let path = folder.path("out");
    fs::write(&path, "earlier").unwrap();
    let mut file = OutputFile::create(&path).unwrap();
    file.write_all(b"new").unwrap();
    file.flush().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
    assert_eq!(folder.names(), ["out", "out.partial"]);
    file.finish().unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(folder.names(), ["out"]);
}

#[test]
fn an_abandoned_output_leaves_nothing_or_what_was_requested() {
    let folder = Folder::new("given-up");
    let path = folder.path("out");
    fs::write(&path, "earlier").unwrap();
    drop(OutputFile::create(&path).unwrap());
    assert_eq!(folder.names(), ["out"]);
    let mut file = OutputFile::create(&path).unwrap();
    file.write_all(b"part").unwrap();
    let partial = file.keep_partial().unwrap();
    drop(file);
    assert_eq!(partial, folder.path("out.partial"));
    assert_eq!(fs::read_to_string(&partial).unwrap(), "part");
    assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
    // The next attempt replaces it.
    let mut file = OutputFile::create(&path).unwrap();
    file.write_all(b"new").unwrap();
    file.finish().unwrap();
    assert_eq!(folder.names(), ["out"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn two_writers_of_one_file_do_not_mix() {
    let folder = Folder::new("two");
    let first = OutputFile::create(&folder.path("out")).unwrap();
    let second = OutputFile::create(&folder.path("out")).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
    drop(first);
    drop(OutputFile::create(&folder.path("out")).unwrap());
}

#[test]
fn folders_are_refused() {
    let folder = Folder::new("folder");
    for path in [folder.0.as_path(), Path::new("/")] {
        assert!(OutputFile::create(path).is_err(), "{}", path.display());
    }
    assert!(OutputFile::create(&folder.path("no/such/out")).is_err());
    assert!(folder.names().is_empty());
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn links_are_followed() {
        let folder = Folder::new("links");
        fs::create_dir(folder.path("elsewhere")).unwrap();
        symlink("elsewhere/file", folder.path("one")).unwrap();
        symlink("one", folder.path("two")).unwrap();
        // At first it is dangling.
        for text in ["first", "second"] {
            write(&folder.path("two"), text.as_bytes()).unwrap();
            let file = folder.path("elsewhere/file");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert!(!file.is_symlink());
            assert!(folder.path("one").is_symlink() && folder.path("two").is_symlink());
        }
        symlink("circle", folder.path("circle")).unwrap();
        assert!(OutputFile::create(&folder.path("circle")).is_err());
    }

    #[test]
    fn permissions_are_those_of_any_new_file_or_of_the_earlier_one() {
        let folder = Folder::new("modes");
        fs::write(folder.path("usual"), "").unwrap();
        write(&folder.path("out"), b"new").unwrap();
        assert_eq!(mode(&folder.path("out")), mode(&folder.path("usual")));
        for set in [0o600, 0o644, 0o755] {
            fs::set_permissions(folder.path("out"), fs::Permissions::from_mode(set)).unwrap();
            write(&folder.path("out"), b"newer").unwrap();
            assert_eq!(mode(&folder.path("out")), set);
        }
    }

    #[test]
    fn devices_and_pipes_are_written_into() {
        write(Path::new("/dev/null"), b"nothing").unwrap();
        assert!(
            fs::metadata("/dev/null")
                .unwrap()
                .file_type()
                .is_char_device()
        );
        let (mut reader, writer) = io::pipe().unwrap();
        let path = {
            use std::os::fd::AsRawFd;
            format!("/proc/self/fd/{}", writer.as_raw_fd())
        };
        if Path::new(&path).exists() {
            write(Path::new(&path), b"through a pipe").unwrap();
            drop(writer);
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "through a pipe");
        }
    }

    /// `-o /dev/stdout >FILE`: the open file is written to, the file at its path is not replaced.
    #[test]
    fn an_open_file_is_written_into() {
        use std::os::fd::AsRawFd;
        let folder = Folder::new("open");
        let path = folder.path("open");
        fs::write(&path, "earlier ").unwrap();
        let open = OpenOptions::new().append(true).open(&path).unwrap();
        let name = format!("/proc/self/fd/{}", open.as_raw_fd());
        if cfg!(not(target_os = "linux")) {
            return; // Only Linux names open files like this.
        }
        let before = fs::metadata(&path).unwrap();
        write(Path::new(&name), b"text").unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino());
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier text");
    }
}
