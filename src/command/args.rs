//! Arguments that several subcommands share.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use unwind_sim::cases;
use unwind_sim::engine::{Engine, MemoryView, Setting};
use unwind_sim::input::{FileKind, Filter, Input, OpenOptions, file_kind};
use unwind_sim::spec;
use unwind_sim_unwind::start::Variant;

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
        let options = OpenOptions {
            symfs: self.symfs.clone(),
        };
        let input = Input::open(&self.path, &options)
            .with_context(|| format!("{}", self.path.display()))?;
        if let Some(cut) = input.trace().cut() {
            anstream::eprintln!("the recording was cut short, what is there is used: {cut}");
        }
        Ok(input)
    }

    /// Which samples of it.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            sample: self.sample,
            tid: self.tid,
            time: self.time,
            limit: self.limit,
        }
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
    /// The unwinders, or these if none were named.
    pub(crate) fn engines(&self, default: &[&str]) -> Result<Vec<Engine>> {
        if self.unwinder.is_empty() {
            return Ok(spec::engines(
                &default.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(),
            )?);
        }
        Ok(spec::engines(&self.unwinder)?)
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
