//! Arguments of the subcommands that run a program in the emulated machine.

use super::args::{parse_seconds, seconds};
use super::schedule::ScheduleArgs;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_emulator::linux::{FileSystem, Limit, Limits, ProcessOptions};
use unwind_sim_judge::cases;
use unwind_sim_judge::input::FileKind;
use unwind_sim_judge::shell::quoted;
use unwind_sim_recordings::file_kind::{self, WrongKind, has_name_of_case};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::open;
use unwind_sim_recordings::printable::PrintableName as _;

/// The end of the year 9999, seconds since 1970.
const CLOCK_MAX: i64 = 253_402_300_799;

/// What a program in the emulated machine sees and may do.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MachineOptions {
    /// The directory that the program sees as `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Let the program change files. By default what it writes is kept in memory.
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// Let the program see files on this kind of file system: `fuse`, `nfs`, `9p`, .. or a number such
    /// as 0x6969. By default it sees those of disks and memory, and the ones that DIR and the program
    /// are on; never the host's proc, sysfs, cgroup and their like.
    #[arg(long = "allow-fs", value_name = "NAME")]
    allow_fs: Vec<FileSystem>,
    /// The seed of all random numbers: the same seed gives the same run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The time of day at which the program's clock starts, in seconds since 1970. By default it is
    /// the year 2037, so that no file is newer.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..=CLOCK_MAX))]
    clock: Option<i64>,
    /// A variable of the program's environment, which then has only these. By default the program
    /// gets the environment of this process, and what is recorded only a part of it (see `record`).
    #[arg(long = "env", value_name = "NAME=VALUE", help_heading = None)]
    pub(crate) env: Vec<OsString>,
    /// Set a limit of the machine: `memory` or `files` (kept in memory) in bytes, `tasks` (threads
    /// and processes) or `objects` (pipe ends, sockets, timers). N may end with K, M or G.
    #[arg(long = "limit", value_name = "NAME=N", value_parser = parse_limit)]
    limits: Vec<(Limit, u64)>,
    /// Give the program no environment but that of --env.
    #[arg(long, help_heading = None)]
    pub(crate) clear_env: bool,
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    #[command(flatten)]
    cpu: CpuArgs,
}

/// Reads `NAME=N` of `--limit`.
fn parse_limit(text: &str) -> Result<(Limit, u64), String> {
    let (name, number) = text.split_once('=').unwrap_or((text, ""));
    let known = Limit::SETTABLE.iter().find(|limit| limit.as_str() == name);
    let names = || Limit::SETTABLE.map(Limit::as_str).join(", ");
    let limit = known.ok_or_else(|| format!("no limit `{name}`; there are {}", names()))?;
    let value = parse_size(number).ok_or_else(|| not_a_size(number))?;
    Ok((*limit, value))
}

/// Reads a number that may end with K, M or G.
pub(crate) fn parse_size(number: &str) -> Option<u64> {
    let (digits, unit) = match number.as_bytes().last() {
        Some(b'K') => (&number[..number.len() - 1], 1 << 10),
        Some(b'M') => (&number[..number.len() - 1], 1 << 20),
        Some(b'G') => (&number[..number.len() - 1], 1 << 30),
        _ => (number, 1_u64),
    };
    digits.parse().ok().and_then(|n: u64| n.checked_mul(unit))
}

/// The error that a word is not what [`parse_size`] reads.
pub(crate) fn not_a_size(number: &str) -> String {
    format!("`{number}` is not a number, with K, M or G if any")
}

/// The option for the emulated processor.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct CpuArgs {
    /// The processor to emulate, including its cpuid: v1, v2 or v3, then intel or amd (with nehalem,
    /// skylake, zen, zen3, zen4 or zen5 after a colon), then features with + or -. `host` is the
    /// closest to this computer's. The default is v3,intel, or `host` for what is compared with this
    /// computer's processor.
    #[arg(
        long = "cpu",
        value_name = "LEVEL[,VENDOR[:GENERATION]][,±FEATURE..]",
        value_parser = unwind_sim_emulator::processor::host::parse
    )]
    processor: Option<Processor>,
}

impl CpuArgs {
    /// The processor given, or else the default, which is the same on every computer.
    pub(crate) fn processor(self) -> Processor {
        self.processor.unwrap_or_default()
    }

    /// The processor given, or else the closest to this computer's.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) fn processor_or_host(self) -> Processor {
        let host = || unwind_sim_emulator::processor::host::host().processor;
        self.processor.unwrap_or_else(host)
    }
}

/// A program for the emulated machine, and how far it runs.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MachineArgs {
    #[command(flatten)]
    options: MachineOptions,
    /// Stop after N instructions.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pub(crate) max_instructions: u64,
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    timeout: Option<f64>,
    /// Assemble the case with the defect in its header.
    #[arg(long)]
    defect: bool,
    /// The program and its arguments, or a case (.s).
    #[arg(
        value_name = "PROG",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

/// A program that is ready to start. Keeps a case's folder for as long as it is needed.
pub(crate) struct MachineProgram {
    pub(crate) program: RunningProgram,
    _case: Option<cases::BuiltCase>,
}

impl MachineOptions {
    /// The program of a command line: found in `PATH`, or an assembled case, with the defect of its
    /// header if `defect` is set.
    pub(crate) fn program(&self, words: &[OsString], defect: bool) -> Result<MachineProgram> {
        self.program_of(words, case_file(words)?.as_ref(), defect)
    }

    /// [`MachineOptions::program`] of a command line whose case, if it names one, is open.
    pub(crate) fn program_of(
        &self,
        words: &[OsString],
        case: Option<&InputFile>,
        defect: bool,
    ) -> Result<MachineProgram> {
        let first = words
            .first()
            .context("no program given: unwind-sim ... -- PROG [ARGS]")?;
        let path = Path::new(first);

        let case = case.map(|file| cases::build_opened(file, defect));
        let case = case.transpose()?;
        // A case is assembled to a temporary file, which has to live as long as the program runs:
        // see `_case` below.
        let found = match &case {
            Some(case) => case.path.clone(),
            None => self.find(path)?,
        };

        // Below another root, `found` is a path of the program, not of this computer.
        if self.root == Path::new("/") {
            is_program(&found)?;
        }

        let bytes = |text: &OsString| text.as_encoded_bytes().to_vec();
        let mut env: Vec<Vec<u8>> = self.env.iter().map(bytes).collect();
        // A case must not depend on who runs it, so it gets no environment.
        if self.env.is_empty() && !self.clear_env && case.is_none() {
            let pair = |(name, value): (OsString, OsString)| {
                [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat()
            };
            env = std::env::vars_os().map(pair).collect();
            // A program has its environment on its stack: the same variables must give the same
            // addresses.
            env.sort();
        }

        // The working folder of this process need not exist below another root.
        let cwd = if self.root == Path::new("/") {
            std::env::current_dir()?.into_os_string()
        } else {
            OsString::from("/")
        };

        // With the rights of this process, the program sees the files that it would see natively.
        let (uid, gid) = user();
        let mut limits = Limits::default();
        for &(limit, value) in &self.limits {
            limits.set(limit, value);
        }
        let defaults = ProcessOptions::default();

        let mut options = ProcessOptions {
            args: words.iter().map(bytes).collect(),
            env,
            root: self.root.clone(),
            cwd: bytes(&cwd),
            allow_write: self.allow_write,
            allow_fs: self.allow_fs.clone(),
            seed: self.seed,
            clock: self.clock.unwrap_or(defaults.clock),
            uid,
            gid,
            processor: self.cpu.processor(),
            limits,
            ..defaults
        };

        self.schedule.apply(&mut options)?;
        let mut program = RunningProgram {
            path: found.as_os_str().as_encoded_bytes().to_vec(),
            options,
        };

        if case.is_some() {
            // Its stack then does not depend on where it was assembled.
            program.start_in_its_folder();
        }

        Ok(MachineProgram {
            program,
            _case: case,
        })
    }

    /// The path of a program below the root.
    fn find(&self, name: &Path) -> Result<PathBuf> {
        if name.components().count() > 1 || name.is_absolute() {
            let absolute = self.root == Path::new("/") && name.is_relative();
            return Ok(if absolute {
                std::env::current_dir()?.join(name)
            } else {
                name.to_owned()
            });
        }
        in_path(name, &self.root).map_or_else(|| not_in_path(name), Ok)
    }

    /// The first option that was given, apart from those for the environment.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.root != Path::new("/"), "--root"),
            (self.allow_write, "--allow-write"),
            (!self.allow_fs.is_empty(), "--allow-fs"),
            (self.seed != 0, "--seed"),
            (self.clock.is_some(), "--clock"),
            (!self.limits.is_empty(), "--limit"),
            (self.cpu.processor.is_some(), "--cpu"),
        ];
        let given = options.iter().find(|(given, _)| *given);
        given.map(|(_, o)| *o).or(self.schedule.given())
    }

    /// The first option that was given and says something of a program, which a kernel has no use for.
    pub(crate) fn given_for_program(&self) -> Option<&'static str> {
        let options = [
            (self.root != Path::new("/"), "--root"),
            (self.allow_write, "--allow-write"),
            (!self.allow_fs.is_empty(), "--allow-fs"),
            (!self.env.is_empty(), "--env"),
            (self.clear_env, "--clear-env"),
            (!self.limits.is_empty(), "--limit"),
        ];
        let given = options.iter().find(|(given, _)| *given);
        given.map(|(_, o)| *o).or(self.schedule.given())
    }

    /// The options that determine how a program runs, as on the command line.
    fn text(&self) -> Vec<String> {
        // Always there: a baseline must not change its meaning when a default does.
        let mut options = vec![
            format!("--seed {}", self.seed),
            format!("--cpu {}", self.cpu.processor()),
        ];

        // Only what is not the default.
        if self.root != Path::new("/") {
            options.push(format!("--root {}", quoted(&self.root)));
        }
        if self.allow_write {
            options.push("--allow-write".to_owned());
        }

        let kinds = self.allow_fs.iter();
        options.extend(kinds.map(|kind| format!("--allow-fs {kind}")));
        if let Some(seconds) = self.clock {
            options.push(format!("--clock {seconds}"));
        }

        let limits = self.limits.iter();
        options.extend(limits.map(|(limit, value)| format!("--limit {}={value}", limit.as_str())));

        let env = self.env.iter().map(quoted);
        options.extend(env.map(|pair| format!("--env {pair}")));
        if self.clear_env {
            options.push("--clear-env".to_owned());
        }

        let schedule = self.schedule.schedule();
        options.extend(schedule.map(|path| format!("--schedule {}", quoted(path))));
        options
    }

    /// The directory that the program sees as `/`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The seed of all random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The time of day at the start, seconds since 1970.
    pub(crate) fn clock(&self) -> i64 {
        self.clock.unwrap_or(ProcessOptions::default().clock)
    }

    /// The option for the emulated processor.
    pub(crate) fn cpu(&self) -> CpuArgs {
        self.cpu
    }
}

impl MachineArgs {
    /// The program: found in `PATH`, or an assembled case.
    pub(crate) fn program(&self) -> Result<MachineProgram> {
        self.options.program(&self.program, self.defect)
    }

    /// The first option that was given and says something of a program, which a kernel has no use for.
    pub(crate) fn given_for_program(&self) -> Option<&'static str> {
        let defect = self.defect.then_some("--defect");
        self.options.given_for_program().or(defect)
    }

    /// The seed of all random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.options.seed()
    }

    /// The time of day at the start, seconds since 1970.
    pub(crate) fn clock(&self) -> i64 {
        self.options.clock()
    }

    /// The option for the emulated processor.
    pub(crate) fn cpu(&self) -> CpuArgs {
        self.options.cpu()
    }

    /// The options for the schedule of threads.
    pub(crate) fn schedule(&self) -> &ScheduleArgs {
        &self.options.schedule
    }

    /// The directory that the program sees as `/`.
    pub(crate) fn root(&self) -> &Path {
        self.options.root()
    }

    /// The time limit.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(seconds)
    }

    /// What determines how the program runs, as on the command line: options and arguments.
    pub(crate) fn options_text(&self) -> Vec<String> {
        let mut options = self.options.text();
        if self.max_instructions != u64::MAX {
            options.push(format!("--max-instructions {}", self.max_instructions));
        }
        options.extend(self.timeout.map(|seconds| format!("--timeout {seconds}")));
        if self.defect {
            options.push("--defect".to_owned());
        }
        let arguments: Vec<String> = self.program.iter().skip(1).map(quoted).collect();
        if !arguments.is_empty() {
            options.push(format!("-- {}", arguments.join(" ")));
        }
        options
    }

    /// The program and its arguments, as given.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.program
    }
}

/// The case that is named in place of a program: by its name, or through a pipe.
fn case_file(words: &[OsString]) -> Result<Option<InputFile>> {
    let Some(path) = words.first().map(Path::new) else {
        return Ok(None);
    };
    if !has_name_of_case(path) && !open::is_piped(path) {
        return Ok(None);
    }
    let file = cases::open(path)?;
    Ok((file.kind() == FileKind::Case).then_some(file))
}

/// The file with this bare name in `PATH`, below `root`.
pub(crate) fn in_path(name: &Path, root: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|p| root.join(p.strip_prefix("/").unwrap_or(p)).is_file())
}

/// The error for a bare name that is not a program in `PATH`.
pub(crate) fn not_in_path<T>(name: &Path) -> Result<T> {
    let shown = name.printable();
    if name.is_file() {
        is_program(name)?;
        bail!("no program {shown} in PATH; the file here is ./{shown}");
    }
    bail!("no program {shown} in PATH")
}

/// Checks that a file may be a program. A file that is known to be something else is an error that
/// names its kind.
pub(crate) fn is_program(path: &Path) -> Result<()> {
    match file_kind::file_kind(path) {
        Ok(kind) if !kind.may_run() => Err(WrongKind {
            path: path.into(),
            kind,
            wanted: "a program".into(),
        }
        .into()),
        // Running it reports all other problems.
        _ => Ok(()),
    }
}

/// User and group of this process, so that the program has the same permissions. They are the owner
/// of `/proc/self`.
fn user() -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let ProcessOptions { uid, gid, .. } = ProcessOptions::default();
    std::fs::metadata("/proc/self").map_or((uid, gid), |m| (m.uid(), m.gid()))
}
