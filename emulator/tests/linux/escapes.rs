//! Attempts of a program to reach beyond the machine. `escapes/escapes.c` makes them and checks each
//! answer; here, what is outside is compared before and after: files with their sums, modes, times
//! and links, a process, and sockets.

use super::{build, options, start};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use unwind_sim_emulator::linux::{Kernel, Outcome, ProcessOptions};

/// The files `vNN` that the program changes.
const FILES: u32 = 90;
/// More than the program executes.
const INSTRUCTIONS_MAX: u64 = 400_000_000;
/// At least so many attempts are made.
const ATTEMPTS_MIN: u64 = 330;
/// With a root, where there are more ways to try.
const ROOTED_ATTEMPTS_MIN: u64 = 900;

/// A folder in which everything happens: `root/box`, where the program works, and `outside`.
struct Scratch {
    folder: tempfile::TempDir,
    root: PathBuf,
    inside: PathBuf,
    outside: PathBuf,
}

impl Scratch {
    fn new() -> Scratch {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let (root, inside, outside) = (path("root"), path("root/box"), path("outside"));

        for new in ["root", "root/box", "root/box/swap", "root/box/swap/keep"] {
            fs::create_dir(path(new)).expect(new);
        }
        for new in ["root/box/empty", "root/box/sub", "outside", "outside/keep"] {
            fs::create_dir(path(new)).expect(new);
        }

        let fifo = |path: &Path| mkfifo(path, Mode::from_bits_truncate(0o644)).expect("a FIFO");
        let write = |path: PathBuf, text: &str| fs::write(path, text).expect("written");
        for number in 10..10 + FILES {
            write(inside.join(format!("v{number}")), "kept");
        }

        // The same names inside and outside, with other contents: what is read tells where it was.
        write(inside.join("swap/inner"), "inner");
        write(inside.join("file"), "inner");
        write(inside.join("blink"), "inner");
        for name in ["secret", "inner"] {
            write(outside.join(name), "secret");
        }
        symlink("secret", outside.join("only-outside")).expect("linked");

        for path in ["fifo", "held", "blink-fifo", "swap/fifo"] {
            fifo(&inside.join(path));
        }
        fifo(&outside.join("fifo"));
        symlink("fifo", inside.join("to-fifo")).expect("linked");
        symlink("loop", inside.join("loop")).expect("linked");

        // Links out of the root, relative and absolute.
        symlink("../../outside", inside.join("out")).expect("linked");
        symlink("../../outside", inside.join("swap-link")).expect("linked");
        symlink("../../outside/secret", inside.join("file-link")).expect("linked");
        symlink("../../outside/secret", inside.join("secret")).expect("linked");
        symlink(&outside, inside.join("absolute")).expect("linked");

        // Scripts whose interpreter is outside.
        write(inside.join("script"), "#!../../outside/secret\n");
        let script = format!("#!{}/secret\n", outside.display());
        write(inside.join("absolute-script"), &script);
        for program in [
            inside.join("script"),
            inside.join("absolute-script"),
            outside.join("secret"),
        ] {
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("changed");
        }

        // Only root may.
        let device = makedev(1, 5);
        let mode = Mode::from_bits_truncate(0o666);
        let _ = mknod(&inside.join("device"), SFlag::S_IFCHR, mode, device);

        Scratch {
            root,
            inside,
            outside,
            folder,
        }
    }

    /// Exchanges a folder, a file and a FIFO in the box for links that lead out, until `stop`.
    fn exchange(&self, stop: &AtomicBool) {
        let pairs = [
            ("swap", "swap-link"),
            ("file", "file-link"),
            ("blink", "blink-fifo"),
        ];
        let mut turns = 0_u64;
        // An even number of times, so that all is in its place at the end.
        while turns % 2 == 1 || !stop.load(Ordering::Relaxed) {
            turns += 1;
            for (one, other) in pairs {
                let (one, other) = (self.inside.join(one), self.inside.join(other));
                let flags = RenameFlags::RENAME_EXCHANGE;
                // The program may just have removed one of them.
                let _ = renameat2(AT_FDCWD, &one, AT_FDCWD, &other, flags);
            }
        }
        assert!(turns > 100, "{turns} exchanges");
    }
}

/// All there is to know of each file below a folder, but when it was read.
fn state(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(path) = todo.pop() {
        let m = fs::symlink_metadata(&path).expect("it is there");
        let content = match m.file_type() {
            kind if kind.is_file() => format!("{:?}", fs::read(&path).expect("readable")),
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).expect("a link")),
            kind if kind.is_dir() => {
                let inside = fs::read_dir(&path).expect("a folder");
                todo.extend(inside.map(|entry| entry.expect("an entry").path()));
                String::new()
            }
            kind if kind.is_fifo() => "FIFO".to_owned(),
            _ => format!("device {}", m.rdev()),
        };

        let times = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
        let text = format!(
            "{:o} {}:{} {} {times:?} {content}",
            m.mode(),
            m.uid(),
            m.gid(),
            m.nlink()
        );
        all.insert(path, text);
    }

    all
}

/// What the program must not reach besides files.
struct Canaries {
    process: Child,
    /// What /proc says of it that others can change.
    before: [String; 2],
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    named: [UnixDatagram; 1],
    held: fs::File,
    sysv: [String; 3],
}

impl Canaries {
    fn new(scratch: &Scratch) -> Canaries {
        let process = Command::new("sleep").arg("1000").spawn().expect("it runs");
        // Somebody else may have the port for UDP.
        let ports = (0..100).find_map(|_| {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            let udp = UdpSocket::bind(tcp.local_addr().ok()?).ok()?;
            Some((tcp, udp))
        });
        let (tcp, udp) = ports.expect("a port");

        let unix = UnixListener::bind(scratch.inside.join("usock")).expect("bound");
        let name = format!("unwind-sim-canary-{}", process.id());
        let name = SocketAddr::from_abstract_name(name).expect("a name");
        let named = UnixDatagram::bind_addr(&name).expect("bound");

        // Without a visitor, `accept` and `recv` must return at once.
        tcp.set_nonblocking(true).expect("set");
        udp.set_nonblocking(true).expect("set");
        unix.set_nonblocking(true).expect("set");
        named.set_nonblocking(true).expect("set");

        // Opening a FIFO for reading waits for a writer, unless `O_NONBLOCK` is set (`man 7 fifo`).
        let held = fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(scratch.inside.join("held"))
            .expect("open");

        Canaries {
            before: properties(&process),
            process,
            tcp,
            udp,
            unix,
            named: [named],
            held,
            sysv: sysv(),
        }
    }

    fn are_untouched(&mut self) {
        let is_alive = self.process.try_wait().expect("asked").is_none();
        assert!(is_alive, "the process was ended");
        assert_eq!(properties(&self.process), self.before);
        let would_wait = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
        assert!(self.tcp.accept().is_err_and(would_wait), "TCP");
        assert!(self.unix.accept().is_err_and(would_wait), "Unix");
        let mut bytes = [0; 8];
        assert!(self.udp.recv(&mut bytes).is_err_and(would_wait), "UDP");
        let [named] = &self.named;
        assert!(named.recv(&mut bytes).is_err_and(would_wait), "a name");
        // There was no writer, so this is the end of the file.
        assert_eq!(self.held.read(&mut bytes).expect("read"), 0, "FIFO");
        assert_eq!(sysv(), self.sysv);
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Priorities, signal masks, processors and limits of a process.
fn properties(process: &Child) -> [String; 2] {
    let read = |name: &str| {
        let path = format!("/proc/{}/{name}", process.id());
        fs::read_to_string(path).unwrap_or_default()
    };
    let stat = read("stat");
    // After the name: state, then from the 4th field on; 15 is the priority, 16 the nice value.
    let fields: Vec<&str> = stat
        .rsplit(") ")
        .next()
        .unwrap_or("")
        .split(' ')
        .skip(15)
        .take(2)
        .collect();
    [fields.join(" "), read("limits")]
}

/// The keys of System V objects that the program asks for.
fn sysv() -> [String; 3] {
    ["shm", "msg", "sem"].map(|kind| {
        let all = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        let key = 0x4834_5634.to_string();
        let lines = all.lines().filter(|line| line.contains(&key));
        lines.collect()
    })
}

/// Makes all attempts; checks each answer and everything outside.
fn attempt(is_rooted: bool, may_write: bool) {
    let scratch = Scratch::new();
    let program = build("escapes/escapes", &scratch.root);
    let mut canaries = Canaries::new(&scratch);

    // Without a root, the program sees all files of the host; then only writing is refused.
    let how = match (is_rooted, may_write) {
        (true, true) => "rw",
        (true, false) => "r",
        (false, true) => "w",
        (false, false) => "-",
    };

    let (process, port) = (canaries.process.id(), canaries.tcp.local_addr());
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let arguments = [
        how.to_owned(),
        process.to_string(),
        port.expect("bound").port().to_string(),
        if is_rooted {
            "/box".to_owned()
        } else {
            text(&scratch.inside)
        },
        text(&scratch.outside),
    ];
    let arguments = arguments.each_ref().map(|argument| &argument[..]);

    let options = ProcessOptions {
        allow_write: may_write,
        ..options(&program, &arguments, &scratch.inside)
    };

    // After all folders and programs are made, and before the program starts.
    let before = state(scratch.folder.path());
    let stop = AtomicBool::new(false);
    let mut kernel = if is_rooted {
        let (root, cwd) = (scratch.root.clone(), b"/".to_vec());
        let options = ProcessOptions {
            root,
            cwd,
            ..options
        };
        Kernel::start(b"/escapes", options).expect("it starts")
    } else {
        start(&program, options)
    };

    // While the program opens files, another thread exchanges them for links: a path may change
    // between its check and its use.
    let outcome = std::thread::scope(|threads| {
        if is_rooted {
            threads.spawn(|| scratch.exchange(&stop));
        }
        let outcome = kernel.run(INSTRUCTIONS_MAX, &mut ());
        stop.store(true, Ordering::Relaxed);
        outcome
    });

    let said = String::from_utf8_lossy(kernel.stdout()).into_owned();
    assert_eq!(outcome, Outcome::Exited(0), "{how}: {said}");

    // The program says how many attempts it made, and how many answers surprised it.
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    };
    let least = if is_rooted {
        ROOTED_ATTEMPTS_MIN
    } else {
        ATTEMPTS_MIN
    };

    assert!(value("attempts") >= least, "{said}");
    assert!(said.ends_with("surprises 0\n"), "{how}:\n{said}");
    canaries.are_untouched();

    // The test itself exchanges these, which changes their times and that of their folder.
    let is_exchanged = |path: &Path| {
        let name = path.strip_prefix(&scratch.inside).unwrap_or(path);
        let first = name.components().next();
        let first = first.map_or("", |first| first.as_os_str().to_str().unwrap_or(""));
        [
            "",
            "swap",
            "swap-link",
            "file",
            "file-link",
            "blink",
            "blink-fifo",
        ]
        .contains(&first)
    };

    // Where the program may write, its own folder may be changed; everything outside stays.
    let is_compared = |path: &Path| {
        let is_inside = path.starts_with(&scratch.inside);
        !is_inside || !(may_write || is_rooted && is_exchanged(path))
    };

    let after = state(scratch.folder.path());
    for (path, text) in before.iter().filter(|(path, _)| is_compared(path)) {
        assert_eq!(after.get(path), Some(text), "{how}: {}", path.display());
    }

    // No set-user-ID and set-group-ID bit, wherever the program may write; a folder's set-group-ID
    // bit gives nobody rights.
    for path in after.keys() {
        let metadata = fs::symlink_metadata(path).expect("it is there");
        let mode = metadata.mode();
        let forbidden = if metadata.is_dir() { 0o4000 } else { 0o6000 };
        assert_eq!(
            mode & forbidden,
            0,
            "{how}: {} has {mode:o}",
            path.display()
        );
    }

    // Neither may anything be new.
    let new = after.keys().filter(|path| is_compared(path));
    for path in new {
        assert!(
            before.contains_key(path),
            "{how}: {} is new",
            path.display()
        );
    }

    // Special files stay what they were, even where the program may write.
    for name in ["fifo", "held", "usock"] {
        let path = scratch.inside.join(name);
        assert!(after.contains_key(&path), "{how}: {name} is gone");
    }
}

#[test]
fn nothing_gets_out_of_a_root() {
    attempt(true, false);
}

#[test]
fn nothing_gets_out_of_a_root_that_may_be_written() {
    attempt(true, true);
}

#[test]
fn nothing_gets_out() {
    attempt(false, false);
}

#[test]
fn nothing_but_files_gets_out_where_writing_is_allowed() {
    attempt(false, true);
}
