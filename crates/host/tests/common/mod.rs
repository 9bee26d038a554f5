//! Shared by the recorder's tests: compiles programs, and keeps everything that a recording
//! reports.
#![allow(dead_code)]

pub(crate) mod skip;
pub(crate) mod tools;

use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_host::{
    At, Event, HostError, Launch, Mapping, Next, Recorder, RecorderError, RecorderOptions, Sample,
    Summary, Target, record,
};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind};

/// Whether this machine allows tracing. If not, the caller ends early and the skip is reported.
pub(crate) fn may_trace(test: &str) -> bool {
    match unwind_sim_host::may_trace() {
        Ok(()) => true,
        Err(HostError::Denied { error, .. }) => {
            skip::skip(test, format_args!("ptrace is denied: {error}"));
            false
        }
        Err(other) => panic!("{other}"),
    }
}

/// A compiled program, in a directory that is removed when this is dropped.
pub(crate) struct Built {
    directory: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

/// Compiles `tests/programs/NAME` with `compiler` and `flags`.
pub(crate) fn build(compiler: &str, name: &str, flags: &[&str]) -> Built {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name);
    let path = directory.path().join("prog");
    let output = Command::new(compiler)
        .args(["-o".as_ref(), path.as_os_str(), file.as_os_str()])
        .args(flags)
        .output()
        .expect("the compiler runs");
    assert!(
        output.status.success(),
        "{compiler}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Built { directory, path }
}

/// A symbol of an image, at its address in a process.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) range: Range<u64>,
    pub(crate) name: String,
}

/// Keeps everything that a recording reports.
#[derive(Default)]
pub(crate) struct Keeper {
    pub(crate) samples: Vec<Sample>,
    pub(crate) events: Vec<String>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) by_name: HashMap<String, u64>,
}

fn bias(file: &object::File<'_>, mapping: &Mapping) -> Option<u64> {
    let segment = file.segments().find(|s| {
        let (offset, size) = s.file_range();
        (offset..offset + size).contains(&(mapping.offset + 0xfff).min(offset + size - 1))
            && offset & !0xfff == mapping.offset
    })?;
    Some(mapping.range.start.wrapping_sub(segment.address() & !0xfff))
}

impl Keeper {
    fn load(&mut self, mapping: &Mapping) {
        let Some(path) = mapping.path() else { return };
        let Ok(bytes) = std::fs::read(path) else {
            return;
        };
        let Ok(file) = object::File::parse(&*bytes) else {
            return;
        };
        let Some(bias) = bias(&file, mapping) else {
            return;
        };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let (Ok(name), address) = (symbol.name(), symbol.address().wrapping_add(bias)) else {
                continue;
            };
            if mapping.range.contains(&address) && !name.is_empty() {
                self.by_name.insert(name.to_owned(), address);
                self.symbols.push(Symbol {
                    range: address..address + symbol.size(),
                    name: name.to_owned(),
                });
            }
        }
    }

    /// The function that holds `pc`.
    pub(crate) fn function(&self, pc: u64) -> &str {
        let found = self.symbols.iter().find(|s| s.range.contains(&pc));
        found.map_or("?", |s| &s.name)
    }

    /// The names of the functions of a chain; those without a symbol, like the restorer, are `?`.
    pub(crate) fn names(&self, frames: &[TrueFrame]) -> Vec<&str> {
        let pc = |f: &TrueFrame| f.pc - u64::from(f.kind == TrueKind::Call);
        frames.iter().map(|f| self.function(pc(f))).collect()
    }
}

impl Recorder for Keeper {
    fn event(&mut self, event: &Event<'_>) -> Result<(), RecorderError> {
        match event {
            Event::Map { mapping, .. } => self.load(mapping),
            Event::Comm { .. } => {}
            other => self.events.push(format!("{other:?}")),
        }
        Ok(())
    }

    fn sample(&mut self, sample: Sample) -> Result<Next, RecorderError> {
        self.samples.push(sample);
        Ok(Next::Go)
    }

    fn locate(&mut self, _: &Mapping, name: &str) -> Vec<u64> {
        let offset = |n: &str| n.parse().expect("an offset");
        let (name, offset) = name
            .split_once('+')
            .map_or((name, 0), |(n, o)| (n, offset(o)));
        self.by_name
            .get(name)
            .map(|a| a + offset)
            .into_iter()
            .collect()
    }
}

/// Options for a quiet recording of `path`, with truth.
pub(crate) fn options(path: &Path, at: At) -> RecorderOptions {
    let program = Launch {
        path: path.into(),
        quiet: true,
        ..Launch::default()
    };
    let mut options = RecorderOptions::new(Target::Run(program), at);
    options.plan.truth = true;
    options.plan.from = Some("main".into());
    options
}

/// Records, and checks that the shadow stacks found no inconsistency.
pub(crate) fn run(options: &RecorderOptions) -> (Keeper, Summary) {
    let mut keeper = Keeper::default();
    let summary = record(options, &mut keeper).expect("the recording succeeds");
    assert!(summary.from_reached, "{summary:#?}");
    let stats = &summary.tracker;
    assert_eq!(stats.failures(), 0, "{summary:#?}");
    assert_eq!(stats.unknown, 0, "{summary:#?}");
    (keeper, summary)
}

/// The word at `address` in the sample's stacks.
pub(crate) fn word(sample: &Sample, address: u64) -> Option<u64> {
    sample.stacks.iter().find_map(|piece| {
        let start = usize::try_from(address.checked_sub(piece.address)?).ok()?;
        let bytes = piece.bytes.get(start..start + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    })
}

/// The pcs found by following frame pointers, starting inside a function's body.
pub(crate) fn frame_pointers(sample: &Sample) -> Vec<u64> {
    let regs = sample.regs.live().expect("live registers");
    let mut out = vec![regs.rip()];
    let mut bp = regs.get(Reg::Rbp).expect("rbp");
    while let (Some(next), Some(pc)) = (word(sample, bp), word(sample, bp + 8)) {
        out.push(pc);
        if next <= bp {
            break;
        }
        bp = next;
    }
    out
}
