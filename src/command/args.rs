//! Arguments shared by several subcommands.

use super::case_limits::CaseLimitArgs;
use super::{output, stdin, suggest};
use crate::command::output::tell;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::input::{self, FileKind, Input};
use unwind_sim_judge::kernel;
use unwind_sim_judge::own::AnswersLimit;
use unwind_sim_judge::shell::quoted_path;
use unwind_sim_judge::spec;
use unwind_sim_judge::unwinders;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::files::FileProblem;
use unwind_sim_recordings::import::Skip;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::kernel::ToldLayout;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::progress::Progress;
use unwind_sim_recordings::trace::Engine as Recorder;
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::MemoryView;
use unwind_sim_unwind::kernel::Version;
use unwind_sim_unwind::start::Variant;
use unwind_sim_view::profile::Format;

/// The recording, and which of its samples to read.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InputArgs {
    #[arg(value_name = "TRACE|CASE", help = stdin::help(FileKind::is_recording), value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// Look for images below this folder first. One that is not there is taken from its original
    /// path if its build ID is the recorded one. What is there may be newer than the recording.
    #[arg(long, visible_alias = "sysroot", value_name = "DIR")]
    pub(crate) symfs: Option<PathBuf>,
    /// Only this sample, counted from 0.
    #[arg(long, value_name = "N")]
    pub(crate) sample: Option<u64>,
    /// Only samples of this thread.
    #[arg(long, value_name = "TID")]
    pub(crate) tid: Option<u32>,
    /// Only samples taken in this range of time, end excluded.
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    pub(crate) time: Option<(u64, u64)>,
    /// At most N samples.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) case: CaseLimitArgs,
    #[command(flatten)]
    pub(crate) kernel: KernelArgs,
}

/// The program of a core.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ProgramArgs {
    /// For a core: the program that wrote it, if its file is not at the path that the core names.
    #[arg(long, value_name = "FILE")]
    exe: Option<PathBuf>,
}

impl ProgramArgs {
    /// Sets the program in the options for opening a recording.
    pub(crate) fn set(&self, options: &mut OpenOptions) -> Result<()> {
        if let Some(exe) = &self.exe {
            InputFile::expect(exe, "a program (ELF)", &[FileKind::Elf])?;
        }
        options.exe.clone_from(&self.exe);
        Ok(())
    }
}

/// Options for kernel stacks.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct KernelArgs {
    /// For kernel stacks: the kernel image (vmlinuz or vmlinux) of a capture or vmcore, or the
    /// version (4.14, 5.2, 5.12, 6.1, 6.3, 6.4, 6.12, 7.1) whose unwinders to imitate. Can be given
    /// twice, once for each.
    #[arg(long, value_name = "FILE|VERSION")]
    kernel: Vec<OsString>,
    /// A System.map, for an image without symbols. For a capture of a kernel that unwinds by frame
    /// pointers or by guessing, it is enough without an image.
    #[arg(long, value_name = "FILE")]
    system_map: Option<PathBuf>,
    /// The layout of ORC entries, named after the first kernel that had it: 4.14, 5.12,
    /// 6.3, 6.4 or 7.1.
    /// By default it is detected.
    #[arg(long, value_name = "VERSION", value_parser = parse_layout)]
    orc_layout: Option<ToldLayout>,
    /// The KASLR offset of the kernel, in hex. By default it is detected, where possible.
    #[arg(long, value_name = "OFFSET", value_parser = parse_address)]
    kaslr: Option<u64>,
    /// For a capture: use the image even if its release or build id is not the one that the capture
    /// names.
    #[arg(long)]
    force: bool,
    /// For a vmcore: the offset of a struct member (`task_struct.tasks=2184`), overriding the
    /// kernel's BTF. Can be given more than once.
    #[arg(long, value_name = "STRUCT.MEMBER=BYTES", value_parser = parse_offset)]
    offset: Vec<(String, u64)>,
}

fn parse_offset(text: &str) -> Result<(String, u64), String> {
    let (member, bytes) = text
        .split_once('=')
        .filter(|(member, _)| member.contains('.'))
        .ok_or("expected STRUCT.MEMBER=BYTES")?;
    let bytes = bytes
        .parse()
        .map_err(|_| format!("`{bytes}` is not a number"))?;
    Ok((member.to_owned(), bytes))
}

pub(crate) fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is not a hexadecimal number"))
}

fn parse_layout(text: &str) -> Result<ToldLayout, String> {
    ToldLayout::from_name(text).ok_or_else(|| suggest::not_one_of(text, &ToldLayout::NAMES))
}

/// The version that a value of `--kernel` names; `None` if the value is a file.
fn version(word: &OsString) -> Option<Version> {
    word.to_str().and_then(kernel::version)
}

impl KernelArgs {
    /// The image, if one was given.
    #[cfg(feature = "machine")]
    pub(crate) fn image(&self) -> Option<&Path> {
        let image = self.kernel.iter().find(|k| version(k).is_none());
        image.map(Path::new)
    }

    /// Whether an image or a version was given.
    #[cfg(feature = "machine")]
    pub(crate) fn is_given(&self) -> bool {
        !self.kernel.is_empty()
    }

    /// The KASLR offset, if it was given.
    #[cfg(feature = "machine")]
    pub(crate) fn offset(&self) -> Option<u64> {
        self.kaslr
    }

    /// The first option that was given and says something of a recording's image.
    #[cfg(feature = "machine")]
    pub(crate) fn given_for_recording(&self) -> Option<&'static str> {
        let options = [
            (self.system_map.is_some(), "--system-map"),
            (self.orc_layout.is_some(), "--orc-layout"),
            (self.force, "--force"),
            (!self.offset.is_empty(), "--offset"),
        ];
        let given = options.iter().find(|(given, _)| *given);
        given.map(|(_, option)| *option)
    }

    /// The kernel version to imitate, if one was given.
    pub(crate) fn version(&self) -> Option<Version> {
        self.kernel.iter().find_map(version)
    }

    /// The options for opening a recording.
    pub(crate) fn options(&self, symfs: Option<PathBuf>) -> Result<OpenOptions> {
        folder(symfs.as_deref())?;
        let system_map = self.system_map.as_deref().map(text_file).transpose()?;

        // The same option takes an image or only a version; a file with a version's name is a
        // version.
        let image = self.kernel.iter().find(|k| version(k).is_none());
        let image = image.map(|image| {
            let mut kinds = FileKind::ALL.to_vec();
            kinds.retain(|kind| kind.may_be_kernel());
            let wanted = "a kernel's image (vmlinuz, vmlinux)";
            InputFile::expect(Path::new(image), wanted, &kinds).with_context(|| {
                format!(
                    "--kernel takes an image, or one of {}",
                    Version::NAMES.join(", ")
                )
            })
        });

        // Fields without an option here are set by the commands that have one.
        Ok(OpenOptions {
            symfs,
            exe: None,
            kernel: image.transpose()?,
            kernel_files: unwind_sim_recordings::kernel::OpenOptions {
                system_map,
                orc_layout: self.orc_layout,
            },
            kaslr: self.kaslr,
            case_limits: CaseLimits::default(),
            chains: false,
            check_age: false,
            force: self.force,
            offsets: self.offset.iter().cloned().collect(),
        })
    }
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let (a, b) = text.split_once("..").ok_or("expected a range A..B")?;
    let number = |s: &str, default| match s {
        "" => Ok(default),
        s => s.parse().map_err(|_| format!("`{s}` is not a number")),
    };
    Ok((number(a, 0)?, number(b, u64::MAX)?))
}

/// Opens the file of a recording, or the case that the program carries under that name.
pub(crate) fn open_file(path: &Path) -> Result<InputFile> {
    input::open_file(path).with_context(|| path.printable().to_string())
}

/// Reads the head of a recording. Reports on stderr if it was cut short.
pub(crate) fn open(file: &InputFile, options: &OpenOptions) -> Result<Input> {
    let path = file.path();
    let input = Input::of(file, options).with_context(|| path.printable().to_string())?;
    output::tell_problems(path, &input.gaps().problems);
    Ok(input)
}

impl InputArgs {
    /// Opens the recording. Reports on stderr if it was cut short.
    pub(crate) fn open(&self) -> Result<Input> {
        let file = open_file(&self.path)?;
        open(&file, &self.options(&file)?)
    }

    /// The options for reading the recording `file`.
    pub(crate) fn options(&self, file: &InputFile) -> Result<OpenOptions> {
        let mut options = self.kernel.options(self.symfs.clone())?;
        self.program.set(&mut options)?;
        self.case.check(file)?;
        options.case_limits = self.case.limits();
        Ok(options)
    }

    /// Opens the recording, and reads it with `read`. Reports on stderr what it lacks.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Input) -> Result<R>) -> Result<R> {
        self.read_opened(&self.open()?, read)
    }

    /// Reads a recording that is open with `read`. Reports on stderr what it lacks.
    pub(crate) fn read_opened<R>(
        &self,
        input: &Input,
        read: impl FnOnce(&Input) -> Result<R>,
    ) -> Result<R> {
        let done = read(input);
        if input.meta().engine == Recorder::Import(FileKind::Core) {
            let problems = input.file_problems();
            let of_build = problems.iter().filter(|p| p.kind.is_about_build());
            let of_build: Vec<FileProblem> = of_build.cloned().collect();
            output::tell_files(&of_build, of_build.len() as u64);
        }
        let gaps = input.gaps();
        output::tell_left_out(&self.path, &gaps);
        if gaps.skipped.contains_key(&Skip::NoRegisters) {
            let path = quoted_path(&self.path);
            tell!("next: unwind-sim doctor {path}, for the chains that perf recorded");
        }
        done
    }

    /// Shows how many of the samples have been read, and how many are left.
    pub(crate) fn progress(&self, input: &Input) -> Progress {
        const UNIT: &str = "samples";
        let all = match self.sample {
            Some(_) => Some(1),
            // How many samples a thread or a time has is not known before they are read.
            None if self.tid.is_some() || self.time.is_some() => None,
            None => input.samples_to_read(),
        };
        match all {
            Some(all) => Progress::up_to(UNIT, all.min(self.limit.unwrap_or(all))),
            None => Progress::new(UNIT, false),
        }
    }

    /// The samples to read.
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

/// Opens a list of symbols, which is a text file, before anything else is read.
pub(crate) fn text_file(path: &Path) -> Result<InputFile> {
    let text = [FileKind::Text];
    Ok(InputFile::expect(path, "a list of symbols (text)", &text)?)
}

/// Checks that a list of the kernel's symbols, which is opened where symbols are looked up, is a text file.
/// What comes through a pipe can be read only once: what is wrong in it shows then.
#[cfg(feature = "perf")]
pub(crate) fn kernel_list(path: Option<&Path>) -> Result<()> {
    match path.filter(|path| !unwind_sim_recordings::open::is_piped(path)) {
        Some(path) => text_file(path).map(drop),
        None => Ok(()),
    }
}

/// Checks that the path is a folder.
pub(crate) fn folder(path: Option<&Path>) -> Result<()> {
    if let Some(path) = path {
        InputFile::expect(path, "a folder", &[FileKind::Folder])?;
    }
    Ok(())
}

/// The option for what chains are judged by.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct JudgeArgs {
    /// What to judge chains by: truth, proof (the frames that the code proves, up to the first that
    /// it does not), dwarf (or any other unwinder), perf (the chains in the recording), or kernel
    /// (the chains that the recorded kernel gave). The default is truth. If the recording has no
    /// truth, `compare` takes its kernel's chains, or else dwarf.
    #[arg(long, value_name = "WHAT", hide_possible_values = true, value_parser = suggest::references())]
    against: Option<String>,
}

impl JudgeArgs {
    /// The value of the option, if given.
    pub(crate) fn name(&self) -> Option<&str> {
        self.against.as_deref()
    }
}

/// The options of walks: unwinders, start registers, memory and limits.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WalkArgs {
    /// Unwinders: dwarf, sframe, orc, fp, guess, lbr, all or cmd:PROGRAM. The full form is
    /// NAME[:PROFILE][+FALLBACK].
    #[arg(long, short, value_name = "U[,U..]", value_delimiter = ',', hide_possible_values = true, value_parser = suggest::unwinders())]
    pub(crate) unwinder: Vec<String>,
    /// Let each cmd: unwinder take this many seconds for all its answers. The default is 3600. Then it
    /// is ended, and stacks without its answer are not judged.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) unwinder_timeout: Option<f64>,
    /// Registers to start from: hw, fake:v5.1, fake:v3-2019, fake:v5.2 (also: fake) or
    /// fake:always-ip. By default each sample starts from the registers it was taken with.
    #[arg(long, value_name = "R[,R..]", value_delimiter = ',', hide_possible_values = true, value_parser = suggest::starts())]
    pub(crate) regs: Vec<String>,
    /// Memory that a walk can read: cpu (all that is recorded), or copy:BYTES (that many bytes from
    /// rsp upwards). The default is what the case says, or else cpu.
    #[arg(long, value_name = "VIEW", hide_possible_values = true, value_parser = suggest::views())]
    pub(crate) view: Option<String>,
    /// End a walk after N frames.
    #[arg(long, value_name = "N")]
    pub(crate) max_frames: Option<u32>,
    /// The code that makes fake registers has frame pointers (CONFIG_FRAME_POINTER).
    #[arg(long)]
    pub(crate) frame_pointer_kernel: bool,
}

impl WalkArgs {
    /// The unwinders given, or else `default`. For kernel stacks the default is the kernel's own
    /// unwinders, of the version that `kernel` names.
    pub(crate) fn engines(
        &self,
        input: &Input,
        kernel: &KernelArgs,
        default: &[&str],
    ) -> Result<Vec<Engine>> {
        let names = |names: &[&str]| names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let specs = match self.unwinder.as_slice() {
            [] if input.is_of_kernel()? => names(&unwinders::KERNEL),
            [] => names(default),
            [all] if all == "all" && input.is_of_kernel()? => names(&unwinders::KERNEL),
            named => named.to_vec(),
        };
        let specs = match kernel.version() {
            Some(version) => specs
                .iter()
                .map(|s| unwind_sim_judge::kernel::with_version(s, version))
                .collect(),
            None => specs,
        };
        self.started(&specs)
    }

    /// The unwinders in a list of names, with the time that each has.
    pub(crate) fn started(&self, specs: &[String]) -> Result<Vec<Engine>> {
        if self.unwinder_timeout.is_some() && !specs.iter().any(|spec| spec.starts_with("cmd:")) {
            bail!("--unwinder-timeout is for --unwinder cmd:PROGRAM");
        }
        let defaults = AnswersLimit::default();
        let answers = AnswersLimit {
            max: self.unwinder_timeout.map_or(defaults.max, seconds),
            raised_by: Some("--unwinder-timeout SECONDS"),
        };
        Ok(spec::engines_within(specs, answers)?)
    }

    /// The start variants given; empty if each sample starts from the registers it was taken with.
    pub(crate) fn variants(&self) -> Result<Vec<Variant>> {
        let parse = |name: &String| {
            Variant::from_name(name).with_context(|| {
                let known = Variant::ALL.map(Variant::as_str);
                format!(
                    "unknown start `{name}`: {}",
                    suggest::not_one_of(name, &known)
                )
            })
        };
        self.regs.iter().map(parse).collect()
    }

    /// The setting that all walks share: as given, or else as the case says.
    pub(crate) fn setting(&self, input: &Input) -> Result<Setting> {
        self.changed(input.setting())
    }

    /// `setting` with what was given.
    pub(crate) fn changed(&self, mut setting: Setting) -> Result<Setting> {
        if let Some(view) = &self.view {
            let Some(view) = MemoryView::from_name(view) else {
                bail!("unknown view `{view}`; expected cpu or copy:BYTES");
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

/// The format of a profile.
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

/// The maximum number of threads that can be asked for.
const THREADS_MAX: usize = 1024;

/// Reads `--threads`.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if threads <= THREADS_MAX => Ok(threads),
        _ => Err(format!("not a number from 0 to {THREADS_MAX}")),
    }
}

/// Seconds of a time limit: a number that is not negative. `inf` is no limit.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds >= 0.0 => Ok(seconds),
        _ => Err("not a number of seconds, which is 0 or more".to_owned()),
    }
}

/// A time given on the command line, saturating.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
