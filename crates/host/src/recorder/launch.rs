//! Starts a program traced from its first instruction.

use super::options::Launch;
use crate::error::HostError;
use nix::libc;
use nix::unistd::{ForkResult, fork, pipe2};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use unwind_sim_emulator_native::ptrace::{self, Waited};

/// What the child needs. All of it is made before the fork, since nothing may be allocated after.
struct Plan {
    candidates: Vec<CString>,
    args: Vec<CString>,
    env: Vec<CString>,
    directory: Option<CString>,
    null: Option<File>,
    randomize: bool,
}

/// The first byte that the child sends, before errno: the step that failed.
const STEP_DIRECTORY: u8 = 1;
const STEP_EXEC: u8 = 2;

fn c_string(text: &OsStr) -> Result<CString, HostError> {
    CString::new(text.as_bytes()).map_err(|_| HostError::NulByte(text.to_owned()))
}

/// The paths that `execvp` would try.
fn candidates(program: &Launch) -> Result<Vec<CString>, HostError> {
    let name = program.path.as_os_str();
    if name.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(name)?]);
    }
    let path = match &program.env {
        Some(env) => env
            .iter()
            .find(|(k, _)| k == "PATH")
            .map(|(_, v)| v.clone()),
        None => std::env::var_os("PATH"),
    };
    let path = path.unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    std::env::split_paths(&path)
        .map(|directory| c_string(directory.join(name).as_os_str()))
        .collect()
}

impl Plan {
    fn new(program: &Launch, randomize: bool) -> Result<Plan, HostError> {
        // argv[0] is the path as given, whichever file is found for it.
        let mut args = vec![c_string(&program.path)?];
        for arg in &program.args {
            args.push(c_string(arg)?);
        }

        let env: Vec<(OsString, OsString)> = match &program.env {
            Some(env) => env.clone(),
            None => std::env::vars_os().collect(),
        };
        let env = env
            .into_iter()
            .map(|(mut key, value)| {
                key.push("=");
                key.push(value);
                c_string(&key)
            })
            .collect::<Result<_, _>>()?;

        let null = || File::options().read(true).write(true).open("/dev/null");
        Ok(Plan {
            candidates: candidates(program)?,
            args,
            env,
            directory: match &program.directory {
                Some(directory) => Some(c_string(directory.as_os_str())?),
                None => None,
            },
            // If /dev/null cannot be opened, the program keeps our streams.
            null: program.quiet.then(null).and_then(Result::ok),
            randomize,
        })
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let mut out: Vec<_> = strings.iter().map(|s| s.as_ptr()).collect();
    out.push(std::ptr::null());
    out
}

/// Runs in the child between fork and exec; makes async-signal-safe calls only.
fn child(
    plan: &Plan,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    go: RawFd,
    report: RawFd,
) -> ! {
    let fail = |step: u8| -> ! {
        let errno = nix::errno::Errno::last_raw();
        let mut message = [step, 0, 0, 0, 0];
        message[1..].copy_from_slice(&errno.to_le_bytes());
        // SAFETY: `message` is valid for 5 bytes, and the process ends here.
        unsafe {
            libc::write(report, message.as_ptr().cast(), message.len());
            libc::_exit(127)
        }
    };

    // SAFETY: these are plain system calls on descriptors, numbers and NUL-terminated strings
    // that live in `plan`, `argv` and `envp`; the two arrays end with a null pointer.
    unsafe {
        // The parent sends this byte once it traces us, so that the exec stops.
        let mut byte = 0u8;
        if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }

        // Rust ignores SIGPIPE, and ignored signals stay ignored across exec.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);

        // A personality is kept across exec (personality(2)).
        if !plan.randomize {
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        }

        if let Some(null) = &plan.null {
            // Standard input, output and error.
            for fd in 0..3 {
                libc::dup2(null.as_raw_fd(), fd);
            }
        }

        if let Some(directory) = &plan.directory
            && libc::chdir(directory.as_ptr()) == -1
        {
            fail(STEP_DIRECTORY);
        }

        // Like execvp(3): a missing file means the next directory, and a denied one is reported
        // only if no other is found.
        let mut denied = false;
        for path in &plan.candidates {
            libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
            match nix::errno::Errno::last_raw() {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => denied = true,
                _ => fail(STEP_EXEC),
            }
        }

        nix::errno::Errno::set_raw(if denied { libc::EACCES } else { libc::ENOENT });
        fail(STEP_EXEC)
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), HostError> {
    pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|errno| HostError::System {
        call: "pipe2",
        tid: 0,
        error: errno.into(),
    })
}

/// Kills and reaps a child.
fn abandon(pid: i32) {
    // SAFETY: `pid` is our own child and has not been reaped.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    while let Ok(Waited::Stopped(_, status)) = ptrace::wait(pid, true) {
        if matches!(
            status,
            ptrace::Status::Exited(_) | ptrace::Status::Killed(_)
        ) {
            break;
        }
    }
}

/// Starts `program` traced; it stops at its exec event.
pub(crate) fn launch(program: &Launch, randomize: bool) -> Result<i32, HostError> {
    let plan = Plan::new(program, randomize)?;
    let (argv, envp) = (pointers(&plan.args), pointers(&plan.env));
    let (go_read, go_write) = pipe()?;
    // Here the child says why it could not execute the program.
    let (report_read, report_write) = pipe()?;

    // SAFETY: the child only calls `child`, which makes async-signal-safe calls and never
    // returns.
    let forked = unsafe { fork() }.map_err(|errno| HostError::System {
        call: "fork",
        tid: 0,
        error: errno.into(),
    })?;

    let pid = match forked {
        ForkResult::Child => child(
            &plan,
            &argv,
            &envp,
            go_read.as_raw_fd(),
            report_write.as_raw_fd(),
        ),
        ForkResult::Parent { child } => child.as_raw(),
    };

    // With our copy of its writing end open, the report below would never end.
    drop((go_read, report_write));

    // If we are killed, nobody handles the breakpoints that the program runs into.
    let options = ptrace::OPTIONS | libc::PTRACE_O_EXITKILL;
    if let Err(HostError::System { error, .. }) =
        ptrace::seize(pid, options).map_err(HostError::from)
    {
        abandon(pid);
        return Err(HostError::Denied { pid, error });
    }

    // If the child is gone, its report below says so.
    let _ = File::from(go_write).write_all(&[1]);

    // A successful exec closes the pipe, so without a report the program runs.
    let mut report = Vec::new();
    let _ = File::from(report_read).take(5).read_to_end(&mut report);
    let &[step, a, b, c, d] = report.as_slice() else {
        return Ok(pid);
    };

    abandon(pid);
    let error = io::Error::from_raw_os_error(i32::from_le_bytes([a, b, c, d]));
    Err(match step {
        STEP_DIRECTORY => HostError::Directory {
            directory: program.directory.clone().unwrap_or_default().into(),
            error,
        },
        _ => HostError::Launch {
            program: program.path.clone(),
            error,
        },
    })
}

/// Checks that this machine allows tracing a child. For tests, which are skipped otherwise.
pub fn may_trace() -> Result<(), HostError> {
    let program = Launch {
        path: "/proc/self/exe".into(),
        quiet: true,
        ..Launch::default()
    };
    abandon(launch(&program, false)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_up_in_the_path_given() {
        let mut program = Launch {
            path: "prog".into(),
            env: Some(vec![("PATH".into(), "/a:/b".into())]),
            ..Launch::default()
        };
        let list = candidates(&program).unwrap();
        assert_eq!(list, [c"/a/prog".to_owned(), c"/b/prog".to_owned()]);
        program.path = "./prog".into();
        assert_eq!(candidates(&program).unwrap(), [c"./prog".to_owned()]);
        program.path = OsStr::from_bytes(b"a/b\0").to_owned();
        assert!(matches!(candidates(&program), Err(HostError::NulByte(_))));
    }
}
