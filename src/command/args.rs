//! Arguments that several subcommands share.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::linux::Options;
use unwind_sim_judge::cases;
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::input::{FileKind, Input, file_kind};
use unwind_sim_judge::kernel;
use unwind_sim_judge::shell::quoted;
use unwind_sim_judge::spec;
use unwind_sim_judge::unwinders;
use unwind_sim_record::program::Program;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::file_kind::{self, WrongKind};
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::kernel::Version;
use unwind_sim_unwind::orc::Layout;
use unwind_sim_unwind::start::Variant;
use unwind_sim_view::profile::Format;

/// Which stacks.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InputArgs {
    /// A trace, a case (.s), a perf.data or an ELF core.
    #[arg(value_name = "TRACE|CASE")]
    pub(crate) path: PathBuf,
    /// Look for images below this folder first.
    #[arg(long, value_name = "DIR")]
    pub(crate) symfs: Option<PathBuf>,
    /// Only this sample, counted from 0.
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<u64>,
    /// Only samples of this thread.
    #[arg(long, value_name = "TID")]
    pub(crate) tid: Option<u32>,
    /// Only samples whose time lies in this range, end excluded.
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    pub(crate) time: Option<(u64, u64)>,
    /// At most so many samples.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,
}

/// Of kernel stacks: the kernel.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct KernelArgs {
    /// The kernel's image (vmlinuz or vmlinux), for a capture or a vmcore; or a version (4.14, 5.2,
    /// 5.12, 6.1, 6.3, 6.4, 6.12, 7.1), as whose unwinders ours behave. Can be given twice.
    #[arg(long, value_name = "FILE|VERSION")]
    kernel: Vec<OsString>,
    /// System.map, where the image has no symbols. Alone it is enough for a capture of a kernel that
    /// unwinds by frame pointers or guesses.
    #[arg(long, value_name = "FILE")]
    system_map: Option<PathBuf>,
    /// How ORC entries are laid out: as in 4.14, 6.3, 6.4 or 7.1. Without this it is found out.
    #[arg(long, value_name = "VERSION", value_parser = parse_layout)]
    orc_layout: Option<Layout>,
    /// How far the kernel was moved (KASLR). Without this it is found, where possible.
    #[arg(long, value_name = "OFFSET", value_parser = parse_address)]
    kaslr: Option<u64>,
    /// Of a capture: take the image even if it is not of the release or build id that it names.
    #[arg(long)]
    force: bool,
    /// Where a member of a struct is in the kernel of a vmcore (`task_struct.tasks=2184`), whatever
    /// its BTF says. Can be given many times.
    #[arg(long, value_name = "STRUCT.MEMBER=BYTES", value_parser = parse_offset)]
    offset: Vec<(String, u64)>,
}

fn parse_offset(text: &str) -> Result<(String, u64), String> {
    let (member, bytes) = text
        .split_once('=')
        .filter(|(member, _)| member.contains('.'))
        .ok_or("an offset is written STRUCT.MEMBER=BYTES")?;
    let bytes = bytes
        .parse()
        .map_err(|_| format!("`{bytes}` is no number"))?;
    Ok((member.to_owned(), bytes))
}

fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is no hexadecimal number"))
}

fn parse_layout(text: &str) -> Result<Layout, String> {
    let names = || Layout::ALL.map(Layout::as_str).join(", ");
    Layout::from_name(text).ok_or_else(|| format!("`{text}` is none of {}", names()))
}

/// The version that a word of `--kernel` names; without one it is a file.
fn version(word: &OsString) -> Option<Version> {
    word.to_str().and_then(kernel::version)
}

impl KernelArgs {
    /// The version to behave as, if one was given.
    pub(crate) fn version(&self) -> Option<Version> {
        self.kernel.iter().find_map(version)
    }

    /// The files, for opening a recording.
    pub(crate) fn options(&self, symfs: Option<PathBuf>) -> Result<OpenOptions> {
        folder(symfs.as_deref())?;
        text_file(self.system_map.as_deref())?;
        let image = self.kernel.iter().find(|k| version(k).is_none());
        if let Some(image) = image.map(Path::new) {
            let kinds = [FileKind::Kernel, FileKind::Elf, FileKind::Compressed];
            FileKind::expect(image, "a kernel's image (vmlinuz, vmlinux)", &kinds).with_context(
                || {
                    format!(
                        "--kernel takes an image, or one of {}",
                        Version::NAMES.join(", ")
                    )
                },
            )?;
        }
        Ok(OpenOptions {
            symfs,
            kernel: image.map(PathBuf::from),
            kernel_files: unwind_sim_recordings::kernel::OpenOptions {
                system_map: self.system_map.clone(),
                orc_layout: self.orc_layout,
            },
            kaslr: self.kaslr,
            force: self.force,
            offsets: self.offset.iter().cloned().collect(),
        })
    }
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (a, b) = text.split_once("..").ok_or("a range is written A..B")?;
    let number = |s: &str, default| match s {
        "" => Ok(default),
        s => s.parse().map_err(|_| format!("`{s}` is no number")),
    };
    Ok((number(a, 0)?, number(b, u64::MAX)?))
}

impl InputArgs {
    /// Opens the recording.
    pub(crate) fn open(&self) -> Result<Input> {
        let options = self.kernel.options(self.symfs.clone())?;
        let input = Input::open(&self.path, &options)
            .with_context(|| format!("{}", self.path.display()))?;
        if let Some(cut) = input.cut() {
            anstream::eprintln!("the recording was cut short, what is there is used: {cut}");
        }
        Ok(input)
    }

    /// Are its stacks a kernel's?
    fn is_kernel(&self) -> Result<bool> {
        Ok(match file_kind(&self.path)? {
            FileKind::Capture => true,
            FileKind::Core => {
                let bytes = unwind_sim_recordings::mapped::map_file(&self.path)?;
                unwind_sim_recordings::import::is_vmcore((*bytes).as_ref())
            }
            FileKind::Trace => {
                let trace = unwind_sim_recordings::trace::Trace::open(&self.path)?;
                trace.sample(0).is_ok_and(|s| s.kernel.is_some())
            }
            _ => false,
        })
    }

    /// Which samples of it.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            sample: self.sample,
            tid: self.tid,
            time: self.time,
            limit: self.limit,
            stitch: false,
        }
    }
}

/// Checks that a list of symbols is text, before anything else is read.
pub(crate) fn text_file(path: Option<&Path>) -> Result<()> {
    if let Some(path) = path {
        FileKind::expect(path, "a list of symbols (text)", &[FileKind::Text])?;
    }
    Ok(())
}

/// Checks that a folder of images is one.
pub(crate) fn folder(path: Option<&Path>) -> Result<()> {
    if let Some(path) = path {
        FileKind::expect(path, "a folder", &[FileKind::Folder])?;
    }
    Ok(())
}

/// What chains are judged by.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct JudgeArgs {
    /// What chains are judged by: truth, dwarf (or any unwinder), perf (the recording's own
    /// chains), kernel (what a recorded kernel said). Without this, by truth; where the recording
    /// has none, `compare` takes what its kernel said, or else dwarf.
    #[arg(long, value_name = "WHAT")]
    against: Option<String>,
}

impl JudgeArgs {
    /// What was named.
    pub(crate) fn name(&self) -> Option<&str> {
        self.against.as_deref()
    }
}

/// Which unwinders, from which registers, with how much memory.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WalkArgs {
    /// dwarf, sframe, orc, fp, guess, lbr, all, cmd:PROGRAM; NAME[:PROFILE][+FALLBACK].
    #[arg(long, short, value_name = "U[,U..]", value_delimiter = ',')]
    pub(crate) unwinder: Vec<String>,
    /// Start from hw, fake:v5.1, fake:v3-2019, fake:v5.2 (also: fake), fake:always-ip. Without
    /// this, each sample is started as it was taken.
    #[arg(long, value_name = "R[,R..]", value_delimiter = ',')]
    pub(crate) regs: Vec<String>,
    /// Memory that a walk sees: cpu (all that is recorded), or copy:BYTES from rsp upwards.
    /// Without this: what the case says, else cpu.
    #[arg(long, value_name = "VIEW")]
    pub(crate) view: Option<String>,
    /// End a walk after so many frames.
    #[arg(long, value_name = "N")]
    pub(crate) max_frames: Option<u32>,
    /// The fake registers were made by code with frame pointers (CONFIG_FRAME_POINTER).
    #[arg(long)]
    pub(crate) frame_pointer_kernel: bool,
}

impl WalkArgs {
    /// The unwinders, or these if none were named; before a kernel's stacks, its own.
    pub(crate) fn engines(&self, input: &InputArgs, default: &[&str]) -> Result<Vec<Engine>> {
        let names = |names: &[&str]| names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let specs = match self.unwinder.as_slice() {
            [] if input.is_kernel()? => names(&unwinders::KERNEL),
            [] => names(default),
            [all] if all == "all" && input.is_kernel()? => names(&unwinders::KERNEL),
            named => named.to_vec(),
        };
        let specs = match input.kernel.version() {
            Some(version) => specs
                .iter()
                .map(|s| kernel::with_version(s, version))
                .collect(),
            None => specs,
        };
        Ok(spec::engines(&specs)?)
    }

    /// The start variants named; empty if each sample is to be started as it was taken.
    pub(crate) fn variants(&self) -> Result<Vec<Variant>> {
        let parse = |name: &String| {
            Variant::from_name(name).with_context(|| {
                format!(
                    "no start `{name}`; there are {}",
                    Variant::ALL.map(Variant::as_str).join(", ")
                )
            })
        };
        self.regs.iter().map(parse).collect()
    }

    /// What all walks share: as told, else as the case at `path` says.
    pub(crate) fn setting(&self, path: &Path) -> Result<Setting> {
        let mut setting = match file_kind(path)? {
            FileKind::Case => cases::setting_of(&cases::read(path)?),
            _ => Setting::default(),
        };
        if let Some(view) = &self.view {
            let Some(view) = MemoryView::from_name(view) else {
                bail!("no view `{view}`; there are cpu and copy:BYTES");
            };
            setting.view = view;
        }
        if let Some(frames_max) = self.max_frames {
            setting.limits.frames_max = frames_max;
        }
        setting.frame_pointer_kernel |= self.frame_pointer_kernel;
        Ok(setting)
    }
}

/// What a program in the emulated machine sees, and may do.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MachineOptions {
    /// The directory that the program sees as `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Let the program change files. Without this what it writes is kept in memory.
    #[arg(long)]
    allow_write: bool,
    /// Decides all random numbers: the same seed, the same run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Its environment; without this that of this process.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    #[command(flatten)]
    cpu: CpuArgs,
}

/// Which processor the machine is.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct CpuArgs {
    /// The processor that the machine is, also by cpuid: v2, then intel or amd (nehalem, skylake,
    /// zen, zen3, zen4 after a colon), then features with + or -. `host` is the closest to that of this
    /// computer. Without this v2,intel; what is compared with this computer's processor takes
    /// `host`.
    #[arg(
        long = "cpu",
        value_name = "LEVEL[,VENDOR[:GENERATION]][,±FEATURE..]",
        value_parser = unwind_sim_record::processor::parse
    )]
    processor: Option<Processor>,
}

impl CpuArgs {
    /// Was one asked for?
    pub(crate) fn is_given(self) -> bool {
        self.processor.is_some()
    }

    /// As it was asked for, else the default, which is the same on every computer.
    pub(crate) fn processor(self) -> Processor {
        self.processor.unwrap_or_default()
    }

    /// As it was asked for, else the closest to this computer's.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) fn processor_or_host(self) -> Processor {
        let host = || unwind_sim_record::processor::host().processor;
        self.processor.unwrap_or_else(host)
    }
}

/// A program for the emulated machine, and how far it runs.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MachineArgs {
    #[command(flatten)]
    options: MachineOptions,
    /// Stop after so many instructions.
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    pub(crate) max_instructions: u64,
    /// Stop after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// Assemble the case with the defect that its header injects.
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

/// A program that is ready to be started. Keeps a case's folder for as long as it is needed.
pub(crate) struct MachineProgram {
    pub(crate) program: Program,
    _case: Option<cases::Program>,
}

impl MachineOptions {
    /// The program, as its command line says: found in `PATH`, or a case, assembled; with
    /// `defect`, with that of its header.
    pub(crate) fn program(&self, words: &[OsString], defect: bool) -> Result<MachineProgram> {
        let first = words
            .first()
            .context("no program: unwind-sim ... -- PROG [ARGS]")?;
        let path = Path::new(first);
        let case = match path.extension() {
            Some(extension) if extension == "s" => Some(cases::build_case(path, defect)?),
            _ => None,
        };
        let found = match &case {
            Some(case) => case.path.clone(),
            None => self.find(path)?,
        };
        if self.root == Path::new("/") {
            is_program(&found)?;
        }
        let bytes = |text: &OsString| text.as_encoded_bytes().to_vec();
        let mut env: Vec<Vec<u8>> = self.env.iter().map(bytes).collect();
        if self.env.is_empty() && case.is_none() {
            let pair = |(name, value): (OsString, OsString)| {
                [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat()
            };
            env = std::env::vars_os().map(pair).collect();
            env.sort();
        }
        let cwd = match self.root == Path::new("/") {
            true => std::env::current_dir()?.into_os_string(),
            false => OsString::from("/"),
        };
        let (uid, gid) = user();
        Ok(MachineProgram {
            program: Program {
                path: found.as_os_str().as_encoded_bytes().to_vec(),
                options: Options {
                    args: words.iter().map(bytes).collect(),
                    env,
                    root: self.root.clone(),
                    cwd: bytes(&cwd),
                    allow_write: self.allow_write,
                    seed: self.seed,
                    uid,
                    gid,
                    processor: self.cpu.processor(),
                    ..Options::default()
                },
            },
            _case: case,
        })
    }

    /// The path of a program below the root.
    fn find(&self, name: &Path) -> Result<PathBuf> {
        if name.components().count() > 1 || name.is_absolute() {
            let absolute = self.root == Path::new("/") && name.is_relative();
            return Ok(match absolute {
                true => std::env::current_dir()?.join(name),
                false => name.to_owned(),
            });
        }
        in_path(name, &self.root).map_or_else(|| not_in_path(name), Ok)
    }

    /// The first of these options that was given.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.root != Path::new("/"), "--root"),
            (self.allow_write, "--allow-write"),
            (self.seed != 0, "--seed"),
            (!self.env.is_empty(), "--env"),
            (self.cpu.processor.is_some(), "--cpu"),
        ];
        options.iter().find(|(given, _)| *given).map(|(_, o)| *o)
    }

    /// Those that decide how a program runs, as on the command line.
    fn text(&self) -> Vec<String> {
        let mut options = vec![
            format!("--seed {}", self.seed),
            format!("--cpu {}", self.cpu.processor()),
        ];
        if self.root != Path::new("/") {
            options.push(format!("--root {}", quoted(&self.root)));
        }
        if self.allow_write {
            options.push("--allow-write".to_owned());
        }
        let env = self.env.iter().map(quoted);
        options.extend(env.map(|pair| format!("--env {pair}")));
        options
    }

    /// The root.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

/// A time on the command line; what is too long for a time has no end.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl MachineArgs {
    /// The program: found in `PATH`, or a case, assembled.
    pub(crate) fn program(&self) -> Result<MachineProgram> {
        self.options.program(&self.program, self.defect)
    }

    /// Which processor the machine is.
    pub(crate) fn cpu(&self) -> CpuArgs {
        self.options.cpu
    }

    /// Most time.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.map(seconds)
    }

    /// What decides how the program runs, as on the command line: options, and its arguments.
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

    /// The program and its arguments, as they were given.
    pub(crate) fn words(&self) -> &[OsString] {
        &self.program
    }
}

/// The file of a bare name in `PATH`, below `root`.
pub(crate) fn in_path(name: &Path, root: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|p| root.join(p.strip_prefix("/").unwrap_or(p)).is_file())
}

/// Why a bare name names no program.
pub(crate) fn not_in_path<T>(name: &Path) -> Result<T> {
    let shown = name.display();
    if name.is_file() {
        is_program(name)?;
        bail!("no program {shown} in PATH; the file here is ./{shown}");
    }
    bail!("no program {shown} in PATH")
}

/// Checks that a file may be a program: what is known to be something else is named.
pub(crate) fn is_program(path: &Path) -> Result<()> {
    let kind = file_kind::file_kind(path);
    let is_other = matches!(
        kind,
        Ok(FileKind::Trace
            | FileKind::PerfData
            | FileKind::Core
            | FileKind::Bpf
            | FileKind::Capture
            | FileKind::Lines
            | FileKind::Kernel
            | FileKind::Compressed
            | FileKind::Empty
            | FileKind::Folder
            | FileKind::Special)
    );
    match (kind, is_other) {
        (Ok(kind), true) => Err(WrongKind {
            path: path.into(),
            kind,
            wanted: "a program",
        }
        .into()),
        // Whoever runs it says the rest.
        _ => Ok(()),
    }
}

/// Who this process is, so that the program may what we may: Linux says so by an owner.
fn user() -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let Options { uid, gid, .. } = Options::default();
    std::fs::metadata("/proc/self").map_or((uid, gid), |m| (m.uid(), m.gid()))
}

/// The formats that profiles are written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum ProfileFormat {
    /// A block for each sample, as perf script prints it.
    PerfScript,
    /// One line for each distinct stack, with its count, for flame graphs.
    Folded,
    /// speedscope's JSON.
    Speedscope,
    /// The Firefox Profiler's processed profile, gzipped.
    Firefox,
    /// pprof's protocol buffer, gzipped.
    Pprof,
}

impl From<ProfileFormat> for Format {
    fn from(format: ProfileFormat) -> Format {
        match format {
            ProfileFormat::PerfScript => Format::PerfScript,
            ProfileFormat::Folded => Format::Folded,
            ProfileFormat::Speedscope => Format::Speedscope,
            ProfileFormat::Firefox => Format::Firefox,
            ProfileFormat::Pprof => Format::Pprof,
        }
    }
}
