//! What a process sees of the host's files, and what it may do with them.

use super::{INSTRUCTIONS_MAX, build, options};
use std::os::unix::fs::symlink;
use std::path::Path;
use unwind_sim_emulator::linux::{Input, Kernel, Outcome, ProcessOptions, StartErrorKind};

/// A root directory with a program that copies: `copy FROM TO`.
fn root() -> (tempfile::TempDir, tempfile::TempDir) {
    let outside = tempfile::tempdir().expect("a directory");
    let root = tempfile::tempdir().expect("a directory");
    build("copy", root.path());
    std::fs::write(outside.path().join("secret"), "secret").expect("written");
    std::fs::write(root.path().join("inside"), "inside").expect("written");
    (root, outside)
}

fn copy(root: &Path, from: &str, to: &str, change: impl FnOnce(&mut ProcessOptions)) -> Kernel {
    let mut options = ProcessOptions {
        root: root.to_path_buf(),
        cwd: b"/".to_vec(),
        ..options(Path::new("copy"), &[from, to], root)
    };
    change(&mut options);
    let mut process = Kernel::start(b"/copy", options).expect("it starts");
    let outcome = process.run(INSTRUCTIONS_MAX, &mut ());
    let text = String::from_utf8_lossy(process.stderr()).into_owned();
    assert!(matches!(outcome, Outcome::Exited(_)), "{outcome:?} {text}");
    process
}

fn copied(root: &Path, from: &str) -> Result<String, String> {
    let process = copy(root, from, "/dev/stdout", |_| {});
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match process.stderr() {
        [] => Ok(text(process.stdout())),
        error => Err(text(error)),
    }
}

#[test]
fn no_path_leads_out_of_the_root() {
    let (root, outside) = root();
    let secret = outside.path().join("secret");
    // More `..` than there are folders: those above the root have no effect.
    let names = outside.path().components().count();
    let up = "../".repeat(names + 4);
    let inside = root.path();

    symlink(&secret, inside.join("absolute")).expect("linked");
    symlink(outside.path(), inside.join("directory")).expect("linked");
    let relative = format!("{up}{}", secret.display());
    symlink(&relative, inside.join("relative")).expect("linked");
    symlink("/inside", inside.join("good")).expect("linked");
    symlink("../../inside", inside.join("up")).expect("linked");

    for good in [
        "inside",
        "/inside",
        "good",
        "up",
        "../../inside",
        "/../inside",
    ] {
        assert_eq!(copied(inside, good), Ok("inside".into()), "{good}");
    }

    // ENOENT is 2, EACCES 13.
    let absolute = secret.display().to_string();
    for bad in [
        "absolute",
        "relative",
        "directory/secret",
        &relative,
        &absolute,
    ] {
        assert_eq!(copied(inside, bad), Err("open -2\n".into()), "{bad}");
    }

    // That of the machine's `init`, not of the host's.
    assert_eq!(copied(inside, "/proc/1/environ"), Err("open -13\n".into()));
}

/// A hole costs nothing, but reading all of the file would.
#[test]
fn a_file_larger_than_the_machines_memory_is_not_read_as_a_whole() {
    let root = tempfile::tempdir().expect("a directory");
    build("holes", root.path());
    let options = ProcessOptions {
        root: root.path().to_path_buf(),
        cwd: b"/".to_vec(),
        ..options(Path::new("holes"), &[], root.path())
    };
    let mut process = Kernel::start(b"/holes", options).expect("it starts");
    assert_eq!(process.run(INSTRUCTIONS_MAX, &mut ()), Outcome::Exited(0));
    assert_eq!(process.file(b"/small"), Some(vec![0; 1 << 20]));
    assert_eq!(process.file(b"/large"), None);
}

#[test]
fn what_is_written_stays_in_memory_or_goes_to_the_host() {
    let (root, _outside) = root();
    let (path, user) = (root.path(), b"inside");
    let process = copy(path, "inside", "new", |_| {});
    assert_eq!(process.stderr(), b"");
    assert_eq!(process.file(b"/new").as_deref(), Some(&user[..]));
    assert!(!path.join("new").exists());
    let process = copy(path, "copy", "inside", |_| {});
    assert_eq!(
        process.file(b"/inside"),
        std::fs::read(path.join("copy")).ok()
    );
    assert_eq!(std::fs::read(path.join("inside")).expect("kept"), user);
    let process = copy(path, "inside", "new", |o| o.allow_write = true);
    assert_eq!(process.file(b"/new").as_deref(), Some(&user[..]));
    assert_eq!(std::fs::read(path.join("new")).expect("written"), user);
}

#[test]
fn files_of_the_host_are_as_old_as_they_were_touched() {
    let (root, _outside) = root();
    let path = root.path();
    let process = copy(path, "inside", "new", |o| {
        o.allow_write = true;
        let more = ["-", "-", "inside"].map(|text| text.as_bytes().to_vec());
        o.args.extend(more);
    });
    assert_eq!(process.stderr(), b"");
    let changed = |name: &str| path.join(name).metadata().and_then(|m| m.modified());
    let (touched, written) = (
        changed("inside").expect("a time"),
        changed("new").expect("a time"),
    );
    // File systems use a clock that may be a few milliseconds late.
    let late = std::time::Duration::from_secs(10);
    assert!(touched <= written + late, "{touched:?} {written:?}");
}

#[test]
fn standard_input_is_what_was_given() {
    let (root, _outside) = root();
    let process = copy(root.path(), "/dev/stdin", "/dev/stderr", |o| {
        o.stdin = Input::Bytes(b"given".to_vec());
    });
    assert_eq!(process.stderr(), b"given");
    // A descriptor, by its path.
    let process = copy(root.path(), "/proc/self/fd/0", "/dev/fd/1", |o| {
        o.stdin = Input::Bytes(b"given".to_vec());
    });
    assert_eq!(process.stdout(), b"given");
}

#[test]
fn the_kernel_says_what_it_made_up() {
    let (root, _outside) = root();
    let text = |path| copied(root.path(), path).expect(path);
    assert_eq!(
        text("/proc/self/cmdline"),
        "copy\0/proc/self/cmdline\0/dev/stdout\0"
    );
    assert_eq!(text("/proc/self/comm"), "copy\n");
    assert_eq!(text("/proc/1000/environ"), "");
    assert_eq!(text("/sys/devices/system/cpu/online"), "0\n");
    let maps = text("/proc/self/maps");
    let program = maps.lines().filter(|line| line.ends_with(" /copy"));
    assert!(program.count() >= 2, "{maps}");
    assert!(maps.contains(" rw-p 00000000 00:00 0 "), "{maps}");
    assert!(maps.lines().any(|line| line.ends_with("[stack]")), "{maps}");
    assert_eq!(
        copied(root.path(), "/proc/self/exe"),
        copied(root.path(), "copy")
    );
}

#[test]
fn scripts_run_their_interpreter() {
    let (root, _outside) = root();
    let path = root.path();
    let script = |name: &str, text: &str| {
        std::fs::write(path.join(name), text).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path.join(name), mode).expect("changed");
    };

    // Linux passes the rest of the line as one argument, without the blanks around it
    // (`fs/binfmt_script.c`).
    script("first", "#! /copy   inside \nrest");
    script("second", "#!/first");
    script("loop", "#!/loop\n");
    script("none", "#!/nothing\n");
    script("empty", "#!\n");

    let start = |name: &str| {
        let options = ProcessOptions {
            root: path.to_path_buf(),
            cwd: b"/".to_vec(),
            ..options(Path::new("name"), &["/given"], path)
        };
        Kernel::start(name.as_bytes(), options)
    };

    let mut process = start("/first").expect("it starts");
    // copy inside /first /given: the third argument is ignored.
    assert_eq!(process.run(INSTRUCTIONS_MAX, &mut ()), Outcome::Exited(0));
    assert_eq!(process.file(b"/first").as_deref(), Some(&b"inside"[..]));

    let mut process = start("/second").expect("it starts");
    assert_eq!(process.run(INSTRUCTIONS_MAX, &mut ()), Outcome::Exited(0));
    assert_eq!(process.file(b"/first").as_deref(), Some(&b"inside"[..]));

    let error = |name: &str| start(name).err().map(|error| error.what);
    assert_eq!(error("/loop"), Some(StartErrorKind::Scripts));
    assert_eq!(error("/none"), Some(StartErrorKind::NotFound));
    assert_eq!(error("/inside"), Some(StartErrorKind::NotExecutable));
    assert_eq!(error("/"), Some(StartErrorKind::NotExecutable));
    assert!(matches!(error("/empty"), Some(StartErrorKind::Load(_))));
}

/// What is stored to memory that shows a file reaches the host only if the program may write there.
#[test]
fn stores_to_mapped_files_stay_in_memory_or_go_to_the_host() {
    for allow_write in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let program = build("calls/shared", directory.path());
        let cwd = directory.path().join("work");
        std::fs::create_dir(&cwd).expect("a directory");
        let options = ProcessOptions {
            allow_write,
            ..options(&program, &[], &cwd)
        };
        let path = program.to_string_lossy().into_owned().into_bytes();
        let mut process = Kernel::start(&path, options).expect("it starts");
        assert_eq!(process.run(INSTRUCTIONS_MAX, &mut ()), Outcome::Exited(0));
        let file = std::fs::read(cwd.join("file")).ok();
        let expected = allow_write.then(|| b"Z123456789abcdef".to_vec());
        assert_eq!(file, expected);
    }
}
