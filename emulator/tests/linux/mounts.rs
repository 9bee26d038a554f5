//! File systems that are mounted below the root: those behind which is the host's kernel stay out of
//! reach of a program, wherever they are mounted. The test mounts them itself, in a user and a mount
//! namespace in which it runs once more; `escapes/mounts.c` makes the attempts.

use super::{build, options};
use crate::skip::skip;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use unwind_sim_emulator::linux::{Kernel, Notice, Outcome, ProcessOptions, StartErrorKind};

/// The environment variable with the folder of a test that runs in its namespaces.
const FOLDER: &str = "UNWIND_SIM_TEST_MOUNTS";
/// New namespaces, in which the user may mount.
const NAMESPACES: [&str; 3] = ["--user", "--map-root-user", "--mount"];
/// More than the program executes.
const INSTRUCTIONS_MAX: u64 = 400_000_000;
/// At least so many attempts are made.
const ATTEMPTS_MIN: u64 = 900;

/// Runs a test of this file in new namespaces, in a folder that is removed when they have gone: who
/// removed it in there would remove what is mounted in it.
fn in_namespaces(test: &str, work: impl FnOnce(&Path)) {
    // Here this program has started itself, in the namespaces.
    if let Some(folder) = std::env::var_os(FOLDER) {
        return work(Path::new(&folder));
    }

    let can = Command::new("unshare")
        .args(NAMESPACES)
        .arg("true")
        .output();
    match can.map(|can| can.status.success()) {
        Ok(true) => {}
        Ok(false) => return skip(test, "user and mount namespaces are not allowed here"),
        Err(_) => return skip(test, "unshare is not installed"),
    }

    let folder = tempfile::tempdir().expect("a folder");
    let done = Command::new("unshare")
        .args(NAMESPACES)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("linux::mounts::{test}"), "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .expect("it runs");

    let said = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}{errors}");
    // If the test had another name by now, none would run, and that would look like success.
    assert!(said.contains("1 passed"), "{said}{errors}");
}

fn mount(words: &[&str], at: &Path) -> bool {
    let done = Command::new("mount").args(words).arg(at).output();
    done.is_ok_and(|done| done.status.success())
}

/// A process of the host that must not be changed.
struct Victim(Child);

impl Victim {
    fn new() -> Victim {
        Victim(Command::new("sleep").arg("1000").spawn().expect("it runs"))
    }

    fn path(&self) -> String {
        format!("/proc/{}", self.0.id())
    }

    /// What others can change of it, and of the host.
    fn state(&self) -> Vec<String> {
        let own = ["oom_score_adj", "coredump_filter", "comm", "environ"];
        let own = own.map(|name| format!("{}/{name}", self.path()));
        let all = ["/proc/sys/kernel/domainname".to_owned()].into_iter();
        let all = all.chain(own);
        all.map(|path| fs::read_to_string(path).unwrap_or_default())
            .collect()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A root with file systems mounted in it.
fn mounted(folder: &Path, victim: &Victim) -> PathBuf {
    let root = folder.join("root");
    let inside = |name: &str| root.join(name);
    let folders = [
        "box",
        "mnt/proc",
        "mnt/process",
        "mnt/sys",
        "mnt/pts",
        "mnt/tmp",
        "mnt/ram",
    ];
    let more = [
        "mnt/over", "mnt/bind", "mnt/flip", "outside", "lower", "upper", "work",
    ];

    // Folders first: a mount needs one to be mounted at, or a file for a file.
    for name in folders.into_iter().chain(more) {
        fs::create_dir_all(inside(name)).expect(name);
    }
    for name in [
        "mnt/mem",
        "mnt/adjust",
        "mnt/domain",
        "box/kept",
        "box/taken",
    ] {
        fs::write(inside(name), "inner").expect(name);
    }
    fs::write(inside("mnt/flip/status"), "inner").expect("written");
    for name in ["outside/file", "lower/file"] {
        fs::write(inside(name), "secret").expect(name);
    }

    // Links that lead to a mount from where the program works.
    for (target, name) in [
        ("../mnt/proc", "box/to-proc"),
        ("/mnt/mem", "box/to-mem"),
        ("../mnt/tmp", "box/to-tmp"),
    ] {
        symlink(target, inside(name)).expect(name);
    }

    // Ways to the kernel of the host: procfs itself, single files of it, and file systems inside of
    // others.
    let process = victim.path();
    let of_process = |name: &str| format!("{process}/{name}");
    let (memory, adjust) = (of_process("mem"), of_process("oom_score_adj"));
    let domain = "/proc/sys/kernel/domainname";
    let outside = inside("outside").display().to_string();
    for (words, at) in [
        (vec!["--rbind", "/proc"], "mnt/proc"),
        (vec!["--rbind", "/sys"], "mnt/sys"),
        (vec!["--bind", &process], "mnt/process"),
        (vec!["--bind", &memory], "mnt/mem"),
        (vec!["--bind", &adjust], "mnt/adjust"),
        (vec!["--bind", domain], "mnt/domain"),
        (vec!["--bind", &outside], "mnt/bind"),
        (vec!["-t", "devpts", "x"], "mnt/pts"),
        (vec!["-t", "tmpfs", "x"], "mnt/tmp"),
        (vec!["-t", "ramfs", "x"], "mnt/ram"),
    ] {
        assert!(mount(&words, &inside(at)), "{words:?}");
    }
    let layers = ["lower", "upper", "work"].map(|name| inside(name).display().to_string());
    let [lower, upper, work] = layers;
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    // Linux before 5.11 does not let users do that.
    if !mount(&["-t", "overlay", "-o", &layers, "x"], &inside("mnt/over")) {
        fs::write(inside("mnt/over/file"), "secret").expect("written");
    }

    // Written after the mounts, so that they are in the mounted file systems.
    for name in ["mnt/tmp/file", "mnt/ram/file"] {
        fs::write(inside(name), "secret").expect(name);
    }

    // A mount inside a mount.
    fs::create_dir(inside("mnt/tmp/deep")).expect("a folder");
    assert!(mount(&["--rbind", "/proc"], &inside("mnt/tmp/deep")));
    root
}

/// Mounts procfs at a folder and takes it away again, until `stop`.
fn exchange(at: &Path, stop: &AtomicBool) {
    let mut turns = 0;
    while !stop.load(Ordering::Relaxed) {
        assert!(mount(&["--bind", "/proc/self"], at));
        let gone = Command::new("umount").arg("--lazy").arg(at).output();
        assert!(gone.is_ok_and(|gone| gone.status.success()));
        turns += 1;
    }
    assert!(turns > 0);
}

/// Makes all attempts. What they were refused is reported with its mount point and kind.
fn attempt(folder: &Path, may_write: bool) {
    let victim = Victim::new();
    let root = mounted(folder, &victim);

    let program = build("escapes/mounts", &root);
    let process = victim.0.id().to_string();
    let options = ProcessOptions {
        allow_write: may_write,
        root: root.clone(),
        cwd: b"/".to_vec(),
        ..options(&program, &[&process], &root.join("box"))
    };

    // What the victim is like before; nothing of it may change.
    let before = victim.state();
    let stop = AtomicBool::new(false);
    let mut kernel = Kernel::start(b"/mounts", options).expect("it starts");
    let outcome = std::thread::scope(|threads| {
        // At the same time, a mount comes and goes: a path may change between its check and its
        // use.
        threads.spawn(|| exchange(&root.join("mnt/flip"), &stop));
        let outcome = kernel.run(INSTRUCTIONS_MAX, &mut ());
        stop.store(true, Ordering::Relaxed);
        outcome
    });

    let said = String::from_utf8_lossy(kernel.stdout()).into_owned();
    assert_eq!(outcome, Outcome::Exited(0), "{said}");

    // The program itself checks every answer.
    assert!(said.ends_with("surprises 0\n"), "{said}");
    let attempts = said.lines().find_map(|line| line.strip_prefix("attempts "));

    // Enough of them, or the program gave up early.
    let attempts: Option<u64> = attempts.and_then(|number| number.parse().ok());
    assert!(attempts.is_some_and(|made| made >= ATTEMPTS_MIN), "{said}");
    assert_eq!(victim.state(), before);

    let refused = kernel.notices().iter().filter_map(|notice| match notice {
        Notice::FileSystem(refusal) => Some(refusal.to_string()),
        _ => None,
    });
    let refused: BTreeSet<String> = refused.collect();
    for (kind, at) in [
        ("proc", "mnt/proc"),
        ("proc", "mnt/process"),
        ("proc", "mnt/mem"),
        ("proc", "mnt/tmp/deep"),
        ("sysfs", "mnt/sys"),
        ("devpts", "mnt/pts"),
    ] {
        let start = format!(
            "the host's file system {kind} at {}: ",
            root.join(at).display()
        );
        let found = refused.iter().find(|text| text.starts_with(&start));

        // Nothing that the user could allow: these are refused in any case.
        assert!(
            found.is_some_and(|text| text.contains("no option allows it")),
            "{start}: {refused:?}"
        );
    }
}

#[test]
fn the_kernel_of_the_host_is_out_of_reach() {
    in_namespaces("the_kernel_of_the_host_is_out_of_reach", |folder| {
        attempt(folder, false);
    });
}

#[test]
fn the_kernel_of_the_host_cannot_be_changed() {
    in_namespaces("the_kernel_of_the_host_cannot_be_changed", |folder| {
        attempt(folder, true);
    });
}

/// Neither a program nor a root makes procfs visible by being on it.
#[test]
fn nothing_starts_on_the_procfs_of_the_host() {
    in_namespaces("nothing_starts_on_the_procfs_of_the_host", |folder| {
        let root = mounted(folder, &Victim::new());
        let start = |root: PathBuf, cwd: &[u8], path: &[u8]| {
            let (cwd, options) = (cwd.to_vec(), ProcessOptions::default());
            let options = ProcessOptions {
                root,
                cwd,
                ..options
            };
            Kernel::start(path, options).err().map(|error| error.what)
        };

        let is_refused = |what: Option<StartErrorKind>, at: &Path| match what {
            Some(StartErrorKind::Refused(refusal)) => {
                let place = format!("proc at {}: ", at.display());
                assert!(refusal.to_string().contains(&place), "{refusal}");
            }
            other => panic!("{other:?}"),
        };

        let mounted = root.join("mnt/proc");

        // As the program, as the working folder, and as the root.
        is_refused(start(root.clone(), b"/", b"/mnt/proc/self/exe"), &mounted);
        is_refused(start(root.clone(), b"/mnt/proc", b"/none"), &mounted);
        is_refused(start(mounted.clone(), b"/", b"/self/exe"), &mounted);
    });
}

/// Mounts a folder of the root again, by a FUSE server; none where there is no FUSE.
fn serve(root: &Path, names: &[&str]) -> Option<Victim> {
    let server = root.with_file_name("server");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linux/fuse.c");
    let built = Command::new("cc")
        .arg("-o")
        .args([&server, &source])
        .status();
    assert!(built.is_ok_and(|built| built.success()), "fuse.c");
    let started = Command::new(server)
        .args([root.join("mnt/fuse"), root.join("served")])
        .args(names)
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Victim(started.expect("it runs"));
    let mut said = [0; 8];
    let mut output = server.0.stdout.take().expect("a pipe");
    output.read_exact(&mut said).is_ok().then_some(server)
}

/// A file system behind which is another program is visible to a program that lies on it, below a
/// root that does, and where it is allowed by name.
#[test]
fn what_a_program_serves_is_visible_where_the_user_chose_it() {
    const EACCES: i32 = 13;
    const TEST: &str = "what_a_program_serves_is_visible_where_the_user_chose_it";
    in_namespaces(TEST, |folder| {
        let root = folder.join("root");
        for name in ["mnt/fuse", "served"] {
            fs::create_dir_all(root.join(name)).expect(name);
        }

        let program = build("missing", &root);

        // The served files: the program itself, and one to look at.
        let served = root.join("served");
        fs::copy(&program, served.join("missing")).expect("copied");
        fs::write(served.join("file"), "inner").expect("written");
        let Some(_server) = serve(&root, &["missing", "file"]) else {
            return skip(TEST, "FUSE is not allowed here");
        };

        let fuse = root.join("mnt/fuse");
        let run = |root: &Path, program: &str, path: &str, allowed: &[&str]| {
            let allowed = allowed.iter().map(|name| name.parse().expect("a name"));
            let options = ProcessOptions {
                allow_fs: allowed.collect(),
                root: root.to_path_buf(),
                cwd: b"/".to_vec(),
                ..options(Path::new(program), &["stat", path], folder)
            };
            let mut kernel = Kernel::start(program.as_bytes(), options).expect("it starts");
            let outcome = kernel.run(INSTRUCTIONS_MAX, &mut ());
            let notices = kernel.notices().iter().map(Notice::to_string);
            (outcome, notices.collect::<Vec<_>>())
        };

        let seen = (Outcome::Exited(0), Vec::new());

        // Not allowed: refused, and the notice says how to allow it.
        let (outcome, notices) = run(&root, "/missing", "/mnt/fuse/file", &[]);
        assert_eq!(outcome, Outcome::Exited(EACCES));
        let text = format!(
            "file system fuse at {}; to allow it: --allow-fs fuse",
            fuse.display()
        );
        assert!(
            matches!(&notices[..], [one] if one.ends_with(&text)),
            "{notices:?}"
        );

        // Other file systems do not count, by name or by number.
        let other = run(&root, "/missing", "/mnt/fuse/file", &["nfs", "0x1234"]);
        assert_eq!(other.0, Outcome::Exited(EACCES));
        // 0x65735546 is `FUSE_SUPER_MAGIC`; all these are file systems of FUSE.
        for name in ["fuse", "fuse.sshfs", "virtiofs", "0x65735546"] {
            let allowed = run(&root, "/missing", "/mnt/fuse/file", &[name]);
            assert_eq!(allowed, seen, "{name}");
        }

        // The user chose the served files here: as the program, or as the root.
        assert_eq!(run(&root, "/mnt/fuse/missing", "/mnt/fuse/file", &[]), seen);
        assert_eq!(run(&fuse, "/missing", "/file", &[]), seen);
    });
}
