//! Runs one command line, here or in the machine, and says what came of it. Not here: whether two
//! results are the same.

use crate::list::Line;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Bytes kept of an output, and of each file.
const BYTES_MAX: u64 = 64 << 20;
/// The time at which all files of `files/` were changed: 2024-01-01, in seconds.
const CHANGED: u64 = 1_704_067_200;

/// A file below the folder of a line: what it is, and its contents.
pub(crate) type Tree = BTreeMap<String, (String, Vec<u8>)>;

/// What came of a run.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct RunResult {
    /// The exit status, as shells give it; `None` if the time limit was reached.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// Standard error, without the machine's own lines.
    pub(crate) stderr: Vec<u8>,
    /// Files at the end.
    pub(crate) files: Tree,
    /// What the machine reported, besides how the program ended.
    pub(crate) notices: Vec<String>,
}

/// The folders of a line.
pub(crate) struct LineFolders {
    top: tempfile::TempDir,
}

fn change_time(path: &Path) {
    for entry in std::fs::read_dir(path).expect("a folder").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            change_time(&entry.path());
        } else {
            let file = std::fs::File::options().append(true).open(entry.path());
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(CHANGED);
            file.and_then(|f| f.set_modified(time)).expect("its time");
        }
    }
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(CHANGED);
    let folder = std::fs::File::open(path).expect("a folder");
    folder.set_modified(time).expect("its time");
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.expect("cp").success(), "cp -a {}", from.display());
}

/// The words before a command that give it a network of its own with nothing but `lo`, as in the
/// machine; none if this computer does not allow that.
fn alone() -> &'static [&'static str] {
    const ROOT: &[&str] = &["unshare", "-n"];
    const USER: &[&str] = &["unshare", "-rn"];
    static WORDS: OnceLock<&[&str]> = OnceLock::new();
    WORDS.get_or_init(|| {
        let works = |words: &&&[&str]| {
            let mut command = Command::new(words[0]);
            let status = command
                .args(&words[1..])
                .arg("true")
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        };
        [ROOT, USER].iter().find(works).copied().unwrap_or(&[])
    })
}

/// Half a day from now, in seconds since 1970: programs show dates of the last half year as here,
/// and no file that is written in the meantime is newer than the machine's clock.
fn later() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs()) + 12 * 3600
}

impl LineFolders {
    /// Makes the folders of `line`; fails if what has to be prepared fails.
    pub(crate) fn new(line: &Line, files: &Path) -> Result<LineFolders, String> {
        let top = tempfile::tempdir().expect("a folder");
        let place = LineFolders { top };
        copy(files, &place.base());

        // Times of files are the same in all runs, since programs print them.
        change_time(&place.base());
        std::fs::create_dir(place.home()).expect("a folder");
        // Nothing to prepare: the files as they are in the repository are the base.
        if line.prepare.is_empty() {
            return Ok(place);
        }

        // Preparing happens in the working folder, whose result is the base of all runs.
        place.renew();
        let mut command = Command::new("bash");
        command.arg("-c").arg(&line.prepare);
        place.set(&mut command);
        command.stdin(Stdio::null());
        let output = command.output().expect("bash");
        let text = String::from_utf8_lossy(&output.stderr);

        if !output.status.success() {
            let last = text.lines().last().unwrap_or("no message");
            return Err(format!("cannot be prepared: {last}"));
        }

        std::fs::remove_dir_all(place.base()).expect("a folder of this test");
        std::fs::rename(place.work(), place.base()).expect("a folder of this test");
        change_time(&place.base());
        Ok(place)
    }

    fn base(&self) -> PathBuf {
        self.top.path().join("base")
    }

    fn home(&self) -> PathBuf {
        self.top.path().join("home")
    }

    fn work(&self) -> PathBuf {
        self.top.path().join("work")
    }

    /// A new copy of the files.
    fn renew(&self) {
        let _ = std::fs::remove_dir_all(self.work());
        copy(&self.base(), &self.work());
        let _ = std::fs::remove_dir_all(self.home());
        std::fs::create_dir(self.home()).expect("a folder");
    }

    /// Sets the environment, the same in all runs, and the folder.
    fn set(&self, command: &mut Command) {
        let old = std::env::var_os("HOME").unwrap_or_default();

        // Tools that live in the user's home folder are found there still.
        let tool = |name: &str, folder: &str| {
            std::env::var_os(name).unwrap_or_else(|| Path::new(&old).join(folder).into())
        };
        command
            .env_clear()
            .envs([
                ("LANG", "C.UTF-8"),
                ("TZ", "UTC"),
                ("TERM", "dumb"),
                ("USER", "user"),
            ])
            // Names and dates are parts of what git hashes.
            .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@b")])
            .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@b")])
            .envs([
                ("GIT_AUTHOR_DATE", "1700000000 +0000"),
                ("GIT_COMMITTER_DATE", "1700000000 +0000"),
            ])
            .envs([
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("SOURCE_DATE_EPOCH", "1700000000"),
            ])
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("CARGO_HOME", tool("CARGO_HOME", ".cargo"))
            .env("RUSTUP_HOME", tool("RUSTUP_HOME", ".rustup"))
            .env("HOME", self.home())
            .env("PWD", self.work())
            .current_dir(self.work());
    }

    /// Runs the line on this computer.
    pub(crate) fn native(&self, line: &Line, limit: Duration) -> RunResult {
        self.renew();
        let mut words: Vec<&str> = alone().to_vec();
        if !words.is_empty() {
            // `lo` is down in a new network.
            words.extend(["bash", "-c", "ip link set lo up; exec \"$@\"", "bash"]);
        }
        words.extend(["bash", "-c", &line.text]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.set(&mut command);
        self.done(command, limit)
    }

    /// Runs the line in the machine: `tool` is unwind-sim.
    pub(crate) fn machine(&self, line: &Line, tool: &Path, limit: Duration) -> RunResult {
        self.renew();
        let mut command = Command::new(tool);
        command
            .args(["emulate", "--allow-write", "--status", "program", "--seed"])
            .arg(line.seed.to_string())
            .args(["--clock", &later().to_string()])
            .args([
                "--timeout",
                &limit.as_secs().to_string(),
                "--",
                "bash",
                "-c",
                &line.text,
            ]);

        self.set(&mut command);
        // The machine ends at its limit and says so; only a machine that hangs meets the longer
        // one.
        let mut done = self.done(command, limit + Duration::from_secs(20));

        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        let mut kept = String::new();
        for row in text.split_inclusive('\n') {
            // What a program leaves of a line may stand before the machine's words.
            let Some((before, own)) = row.split_once("unwind-sim: ") else {
                kept.push_str(row);
                continue;
            };
            kept.push_str(before);

            // How the program ended is in the status, too.
            let ended = own.starts_with("exited with status") || own.starts_with("killed by");
            if !ended {
                done.notices.push(own.trim_end().to_owned());
            }
        }

        done.stderr = kept.into_bytes();
        done
    }

    fn done(&self, mut command: Command, limit: Duration) -> RunResult {
        // An empty pipe, as the machine sees its standard input.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A group of its own, so that its children can be killed with it.
        command.process_group(0);

        let mut child = command.spawn().expect("bash or unwind-sim");
        drop(child.stdin.take());
        let stdout = reader(child.stdout.take().expect("piped"));
        let stderr = reader(child.stderr.take().expect("piped"));
        let status = wait(&mut child, limit);

        // Children that were left behind.
        let group = nix::unistd::Pid::from_raw(child.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);

        let output = |bytes: std::sync::mpsc::Receiver<Vec<u8>>| {
            bytes
                .recv_timeout(Duration::from_secs(5))
                .unwrap_or_default()
        };

        RunResult {
            status,
            stdout: output(stdout),
            stderr: output(stderr),
            files: tree(&self.work()),
            notices: Vec::new(),
        }
    }
}

/// The exit status of a child, which is killed at the limit.
fn wait(child: &mut Child, limit: Duration) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(
                status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            );
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a pipe to its end in another thread.
fn reader(pipe: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.take(BYTES_MAX).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// Kind, permissions and contents of all files below a folder.
fn tree(top: &Path) -> Tree {
    let mut found = Tree::new();

    // With a list of its own, not by recursion: a program may nest folders as deep as it likes.
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();

            // Of links themselves: their targets may be outside or missing.
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            let name = path
                .strip_prefix(top)
                .expect("below")
                .to_string_lossy()
                .into_owned();

            let kind = meta.file_type();
            let mut bytes = Vec::new();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap_or_default();
                bytes = target.as_os_str().as_encoded_bytes().to_vec();
            } else if kind.is_file() {
                let file = std::fs::File::open(&path);
                // A program may write more than is worth comparing.
                let read = file.and_then(|f| f.take(BYTES_MAX).read_to_end(&mut bytes));
                read.expect("a file that was just written");
            }

            let kind = format!("{:o}", meta.permissions().mode());
            found.insert(name, (kind, bytes));
        }
    }
    found
}
