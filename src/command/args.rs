//! Arguments that several subcommands share.

use super::suggest;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use unwind_sim_judge::cases;
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::input::{FileKind, Input, file_kind};
use unwind_sim_judge::kernel;
use unwind_sim_judge::spec;
use unwind_sim_judge::unwinders;
use unwind_sim_recordings::convert::OpenOptions;
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
    #[arg(long, value_name = "WHAT", hide_possible_values = true, value_parser = suggest::references())]
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
    #[arg(long, short, value_name = "U[,U..]", value_delimiter = ',', hide_possible_values = true, value_parser = suggest::unwinders())]
    pub(crate) unwinder: Vec<String>,
    /// Start from hw, fake:v5.1, fake:v3-2019, fake:v5.2 (also: fake), fake:always-ip. Without
    /// this, each sample is started as it was taken.
    #[arg(long, value_name = "R[,R..]", value_delimiter = ',', hide_possible_values = true, value_parser = suggest::starts())]
    pub(crate) regs: Vec<String>,
    /// Memory that a walk sees: cpu (all that is recorded), or copy:BYTES from rsp upwards.
    /// Without this: what the case says, else cpu.
    #[arg(long, value_name = "VIEW", hide_possible_values = true, value_parser = suggest::views())]
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
