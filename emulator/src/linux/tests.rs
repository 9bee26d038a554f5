//! System calls with arguments that no real program passes.

use super::errno::{Answer, Errno};
use super::files::{Files, Node, ResolvedPath, o};
use super::numbers as nr;
use super::{Input, Kernel, Limits, Outcome, PID, ProcessOptions};
use crate::address_space::Permissions;
use crate::state::reg;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{self, Permissions as Rights};
use std::os::unix::fs::{PermissionsExt, symlink};

/// A program: an ELF header, a program header, and a segment with one instruction.
fn program() -> Vec<u8> {
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let halves = |elf: &mut Vec<u8>, all: &[u16]| {
        all.iter()
            .for_each(|h| elf.extend_from_slice(&h.to_le_bytes()));
    };
    let words = |elf: &mut Vec<u8>, all: &[u64]| {
        all.iter()
            .for_each(|w| elf.extend_from_slice(&w.to_le_bytes()));
    };
    halves(&mut elf, &[2, 62, 1, 0]);
    words(&mut elf, &[0x40_0078, 64, 0]);
    halves(&mut elf, &[0, 0, 64, 56, 1, 0, 0, 0]);
    halves(&mut elf, &[1, 0, 5, 0]);
    words(&mut elf, &[0, 0x40_0000, 0x40_0000, 0x7a, 0x7a, 0x1000]);
    // syscall
    elf.extend_from_slice(&[0x0f, 0x05]);
    elf
}

fn process(stdin: &[u8]) -> (tempfile::TempDir, Kernel) {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("program"), program()).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(root.path().join("program"), mode).expect("changed");
    let options = ProcessOptions {
        args: vec![b"program".to_vec()],
        root: root.path().to_path_buf(),
        stdin: Input::Bytes(stdin.to_vec()),
        limits: Limits {
            pages: 4096,
            file_bytes: 1 << 20,
            output_bytes: 1 << 16,
            ..Limits::default()
        },
        ..ProcessOptions::default()
    };
    let mut process = Kernel::start(b"/program", options).expect("it starts");
    let memory = &mut process.machine.core.memory;
    let mapped = memory.map(0x40_1000..0x40_5000, Permissions::READ_WRITE);
    mapped.expect("it is free");
    (root, process)
}

/// Makes a call as the program would; `None` if it ended the program.
fn call(process: &mut Kernel, number: u64, args: [u64; 6]) -> Option<i64> {
    let core = &mut process.machine.core;
    core.state.rip = 0x40_0078;
    core.state.set_gpr(reg::RAX, number);
    for (register, arg) in [reg::RDI, reg::RSI, reg::RDX, 10, 8, 9]
        .into_iter()
        .zip(args)
    {
        core.state.set_gpr(register, arg);
    }
    match process.run(1, &mut ()) {
        Outcome::Limit => Some(process.machine.core.state.gpr(reg::RAX).cast_signed()),
        _ => None,
    }
}

#[test]
fn no_arguments_panic_or_take_more_than_the_limits() {
    let mut random = crate::random::Random::new(20_250_101);
    let mut number = move || {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    };

    // More numbers than there are calls, since unknown ones must be refused.
    let mut calls = [0_u32; 470];
    let mut answered = 0;
    for _ in 0..200 {
        // New processes, because some calls change what later ones can do.
        let (_root, mut process) = process(b"some input");

        // Pointers of all kinds, including pointers to paths.
        let page = 0x40_1000;
        let text = b"/program\0dir\0../a/b\0/proc/self/fd/1\0/proc/self/maps\0.\0/dev/zero\0";
        let _ = process.machine.core.memory.poke(page + 8, text);

        let mut arguments = || {
            let n = number();
            match n % 16 {
                0 => 0,
                1 => u64::MAX,
                2 => number(),
                3 => page + n / 16 % 0x1000,
                4 => page + 8 + [0, 9, 13, 20, 36, 52][(n / 16 % 6) as usize],
                5 => 1 << (n / 16 % 64),
                6 => (1 << (n / 16 % 64)) - 1,
                7 => page + n / 16 % 16 * 0x1000,
                8 => 0x7fff_ffff_f000 - n / 16 % 0x3000,
                9 => 0x40_0000,
                10 => u64::from(PID),
                11 => (n / 16 % 0x1000).wrapping_neg(),
                12 => n / 16 % 0x1_0000,
                _ => n / 16 % 20,
            }
        };

        for index in 0..300 {
            let n = arguments() % 470;
            let args = [0; 6].map(|_| arguments());

            // The program must stay in place, and must not end early.
            let ends = matches!(n, nr::exit | nr::exit_group | nr::rt_sigreturn | nr::pause);
            let moves = matches!(n, nr::munmap | nr::mprotect | nr::mmap | nr::mremap);
            if moves && args[0] == 0x40_0000 || ends && index < 250 {
                continue;
            }
            calls[n as usize] += 1;

            // `None`: the call has ended the program.
            let Some(result) = call(&mut process, n, args) else {
                break;
            };
            answered += 1;
            let error = (-4095..0).contains(&result);
            assert!(
                // The largest error number of Linux on x86-64 is 133, `EHWPOISON`; those of the
                // kernel's own must not get out.
                !error || result >= -133,
                "call {n} {args:x?} answered {result}"
            );
            assert!(process.machine.core.memory.pages_in_use() <= 4096);
            assert!(process.stdout().len() <= 1 << 16);
        }
    }
    assert!(answered > 20_000, "{answered}");

    // Random numbers leave some out, but not many.
    let never = calls.iter().filter(|&&count| count == 0).count();
    assert!(never < 100, "{never} calls were never made");
}

#[test]
fn files_that_only_their_owner_may_use_are_the_processs() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().expect("a directory");
    let folder = root.path().join("folder");
    std::fs::create_dir(&folder).expect("made");
    let path = folder.join("program");
    std::fs::write(&path, program()).expect("written");
    for private in [&path, &folder, &root.path().to_owned()] {
        let mode = PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(private, mode).expect("changed");
    }

    for uid in [1000, 4711] {
        let options = ProcessOptions {
            args: vec![b"program".to_vec()],
            root: root.path().to_path_buf(),
            uid,
            gid: uid + 1,
            ..ProcessOptions::default()
        };
        let process = Kernel::start(b"/folder/program", options).expect("it starts");
        let resolved = process.files.find(b"/", b"/folder/program", true);

        // The user of the host who started the machine is the user inside, whatever the number.
        let attributes = process.files.attributes(&resolved.expect("it is there"));
        assert_eq!((attributes.uid, attributes.gid), (uid, uid + 1));
    }
}

#[test]
fn time_passes_with_instructions_and_sleep() {
    let (_root, mut process) = process(b"");
    let at = 0x40_2000;
    let word = |process: &Kernel, at| process.u64_at(at).expect("it is mapped");
    let now = |process: &mut Kernel| {
        assert_eq!(
            call(process, nr::clock_gettime, [1, at, 0, 0, 0, 0]),
            Some(0)
        );
        (word(process, at), word(process, at + 8))
    };
    assert_eq!(now(&mut process), (1000, 1));
    assert_eq!(now(&mut process), (1000, 2));
    process.put_words(at + 16, &[2, 500]).expect("it is mapped");
    let sleep = [at + 16, 0, 0, 0, 0, 0];
    assert_eq!(call(&mut process, nr::nanosleep, sleep), Some(0));
    assert_eq!(now(&mut process), (1002, 504));
    // Processor time does not pass.
    assert_eq!(
        call(&mut process, nr::clock_gettime, [2, at, 0, 0, 0, 0]),
        Some(0)
    );
    assert_eq!((word(&process, at), word(&process, at + 8)), (0, 5));
    // An alarm in one second, and its remaining time.
    assert_eq!(call(&mut process, nr::alarm, [1, 0, 0, 0, 0, 0]), Some(0));
    assert_eq!(call(&mut process, nr::alarm, [7, 0, 0, 0, 0, 0]), Some(1));
    assert_eq!(call(&mut process, nr::nanosleep, sleep), Some(0));
    assert_eq!(call(&mut process, nr::alarm, [0, 0, 0, 0, 0, 0]), Some(5));
}

/// Other processes of the host may give a name to another file at any time.
#[test]
fn a_file_that_was_exchanged_since_it_was_looked_up_is_not_used() {
    type NodeAction = fn(&mut Files, ResolvedPath) -> Answer<()>;
    const READ: NodeAction = |files, seen| files.open(seen, o::RDONLY, 0, Vec::new()).map(drop);
    const CHANGE: NodeAction = |files, seen| files.open(seen, o::RDWR, 0, Vec::new()).map(drop);
    const REPLACE: NodeAction = |files, seen| {
        let flags = o::WRONLY | o::TRUNC;
        files.open(seen, flags, 0, Vec::new()).map(drop)
    };
    const CUT: NodeAction = |files, seen| files.truncate(seen, 3).map(drop);
    const SET_MODE: NodeAction = |files, seen| files.chmod(seen, 0o600).map(drop);
    const SET_TIMES: NodeAction = |files, seen| files.set_times(seen, None, None, true).map(drop);
    const RUN: NodeAction = |files, seen| match &seen.node {
        Node::Host(metadata) => files.read_program(&seen.path, metadata, 1 << 20).map(drop),
        _ => Ok(()),
    };
    let of_files: &[(bool, &[NodeAction])] = &[
        // Without the right to write, a change copies the file into memory, and so must read it.
        (false, &[READ, CHANGE, CUT, SET_MODE, SET_TIMES, RUN]),
        (true, &[READ, CHANGE, REPLACE, CUT, RUN]),
    ];

    for &(allow_write, uses) in of_files {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);

        // Opening a FIFO would wait for a writer: it must be noticed before.
        mkfifo(&path("fifo"), Mode::S_IRWXU).expect("made");

        for name in ["one", "two"] {
            fs::write(path(name), program()).expect("written");
            fs::set_permissions(path(name), Rights::from_mode(0o755)).expect("changed");
            symlink(name, path(&format!("to-{name}"))).expect("linked");
        }

        let exchange = |one: &str, other: &str| {
            for (from, to) in [(one, "between"), (other, one), ("between", other)] {
                fs::rename(path(from), path(to)).expect("renamed");
            }
        };

        let options = ProcessOptions {
            root: root.path().to_path_buf(),
            allow_write,
            ..ProcessOptions::default()
        };
        let mut process = Kernel::start(b"/one", options).expect("it starts");
        let files = &mut process.files;

        let find = |files: &Files, name: &str| {
            let found = files.find(b"/", name.as_bytes(), false);
            found.expect("it is there")
        };
        let mut attempt = |one: &str, other: &str, it: NodeAction| {
            let seen = find(files, one);

            // Between the lookup and the use, as another process may do it.
            exchange(one, other);
            let answer = it(files, seen);
            // Looked up again, it is the other one.
            assert!(matches!(find(files, one).node, Node::Host(_)), "{one}");
            exchange(one, other);
            answer
        };

        for it in uses {
            for other in ["two", "fifo"] {
                assert_eq!(attempt("one", other, *it), Err(Errno::ESTALE), "{other}");
            }
        }
        if !allow_write {
            assert_eq!(attempt("to-one", "to-two", SET_TIMES), Err(Errno::ESTALE));
            assert_eq!(attempt("to-one", "one", SET_TIMES), Err(Errno::ESTALE));
            // Nothing but the attributes of the file is needed, and these were seen.
            assert_eq!(attempt("one", "fifo", REPLACE), Ok(()));
            let Node::Memory(inode) = find(files, "one").node else {
                panic!("it was not copied");
            };
            assert_eq!(
                (inode.borrow().mode, inode.borrow().data().to_vec()),
                (0o100_755, Vec::new())
            );
        }
        for name in ["one", "two"] {
            // Whatever was tried, the files of the host are as before.
            assert_eq!(fs::read(path(name)).expect("readable"), program());
        }
    }
}

#[test]
fn a_call_is_made_once_more_if_a_file_was_exchanged() {
    let answers = [Err(Errno::ESTALE), Ok(7), Err(Errno::EIO), Ok(8)];
    for (first, answer, calls) in [(0, Ok(7), 2), (1, Ok(7), 1), (2, Err(Errno::EIO), 1)] {
        let mut next = answers[first..].iter();
        assert_eq!(
            super::calls::retry_stale(|| *next.next().expect("few calls")),
            answer
        );
        assert_eq!(answers.len() - first - next.len(), calls);
    }
}
