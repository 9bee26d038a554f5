//! Built-in recordings: what this project began with, to be seen without any file.

use crate::engine::{Setting, View};
use crate::input::{Filter, Input};
use crate::names::Location;
use crate::run::RunError;
use crate::spec;
use std::fmt::Write as _;
use unwind_sim_corpus::trace::{Trace, TraceError};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Chain, Found};
use unwind_sim_unwind::start::{FakeVariant, Variant};

/// A built-in recording.
pub struct Demo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    trace: &'static [u8],
    text: fn(&Input) -> Result<String, RunError>,
}

/// All demos.
pub const ALL: [Demo; 1] = [Demo {
    name: "seed-004",
    about: "a tracepoint's fake registers under ORC: one kernel frame against eight",
    trace: include_bytes!("../corpus/traces/seed-004.bin"),
    text: seed_004,
}];

impl Demo {
    /// The recording.
    ///
    /// # Errors
    /// If it is damaged, which a test rules out.
    pub fn input(&self) -> Result<Input, TraceError> {
        Ok(Input::from_trace(Trace::from_bytes(self.trace)?))
    }

    /// What it shows, as text.
    ///
    /// # Errors
    /// If the recording is damaged, which a test rules out.
    pub fn show(&self) -> Result<String, RunError> {
        (self.text)(&self.input().map_err(crate::input::InputError::from)?)
    }
}

const SEED_004_HEAD: &str = "\
A tracepoint in __alloc_pages_nodemask asks perf for the callchain. There was no interrupt, so
there are no hardware registers: perf_arch_fetch_caller_regs makes fake ones, with flags = 0.
The kernel has ORC tables and no frame pointers.

Up to Linux 5.1 the fake registers held the tracing function's own frame pointer and live sp, and
were taken as real. The unwinder looks for the caller's frame where it is not:
";

const SEED_004_MIDDLE: &str = "
Since 5.2 (d15d356887e7) the unwinder starts from its own registers, and sp is only the mark up to
which frames are skipped: those of the tracing machinery itself.
";

const SEED_004_TAIL: &str = "
Step by step: unwind-sim explain corpus/traces/seed-004.bin --sample 2 --unwinder orc --regs fake:v5.2
All starts:   unwind-sim compare corpus/traces/seed-004.bin --sample 2 --regs fake:v5.1,fake:v3-2019,fake:v5.2,fake:always-ip
";

fn seed_004(input: &Input) -> Result<String, RunError> {
    let mut out = SEED_004_HEAD.to_owned();
    input.for_each(&Filter::default(), &mut |view| {
        if view.sample.regs.is_fake() {
            for variant in [FakeVariant::V5_1, FakeVariant::V5_2] {
                if variant == FakeVariant::V5_2 {
                    out.push_str(SEED_004_MIDDLE);
                }
                out.push_str(&perf_script(view, Variant::Fake(variant)));
            }
        }
        Ok(())
    })?;
    out.push_str(SEED_004_TAIL);
    Ok(out)
}

/// The chain of `orc` in the form of `perf script`, with the verdict.
fn perf_script(view: &View<'_>, variant: Variant) -> String {
    let Ok(engine) = spec::engine("orc") else {
        return String::new();
    };
    let outcome = view.examine(&engine, variant, &Setting::default(), &mut Cache::new());
    let mut out = format!("\n  --regs {}\n", variant.as_str());
    let chain: &Chain = &outcome.chain;
    for frame in &chain.frames {
        let place = Location::of(view.space, frame.pc);
        let image = place.image.as_deref().unwrap_or("[unknown]");
        let _ = writeln!(out, "    {:>16x} {place} ({image})", frame.pc.value());
    }
    let frames = chain.frames.len();
    let derived = chain.frames.iter().any(|f| match &f.found {
        Found::Rule { source, .. } => source.table.as_str().ends_with("(derived)"),
        _ => false,
    });
    let table = if derived { "orc(derived)" } else { "orc" };
    let s = crate::text::plural(frames as u64);
    let _ = writeln!(
        out,
        "  {table}: {frames} frame{s}, {} {}",
        outcome.verdict.as_str(),
        outcome.verdict
    );
    if let Some(d) = &outcome.diagnosis {
        let place = Location::of(view.space, d.pc);
        let _ = writeln!(
            out,
            "  because of {} {} in {place}",
            d.code,
            d.code.description()
        );
    }
    out
}
