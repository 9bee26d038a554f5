//! A demo as text and pictures of its samples.

use super::DemoNote;
use crate::picture::{DrawnWalk, Hidden, chains, picture};
use unwind_sim_judge::engine::{Outcome, Setting};
use unwind_sim_judge::input::Input;
use unwind_sim_judge::run::RunError;
use unwind_sim_judge::spec;
use unwind_sim_recordings::view::{Filter, MemoryView, View};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::start::Variant;

/// A part of a demo.
pub(super) enum DemoStep {
    /// Text, printed as it is.
    Say(&'static str),
    /// The picture of a sample, or only its chains.
    Show {
        /// The sample, from 0.
        sample: u64,
        /// The unwinders.
        unwinders: &'static [&'static str],
        /// The memory that they see.
        memory: MemoryView,
        /// Whether the words are shown.
        words: bool,
    },
}

/// The picture of a sample, with all of its memory.
pub(super) const fn words(sample: u64, unwinders: &'static [&'static str]) -> DemoStep {
    DemoStep::Show {
        sample,
        unwinders,
        memory: MemoryView::Cpu,
        words: true,
    }
}

/// The chains of a sample.
pub(super) const fn only_chains(sample: u64, unwinders: &'static [&'static str]) -> DemoStep {
    DemoStep::Show {
        sample,
        unwinders,
        memory: MemoryView::Cpu,
        words: false,
    }
}

/// The text of a demo.
pub(super) fn text(input: &Input, parts: &[DemoStep]) -> Result<String, RunError> {
    let mut out = String::new();
    for part in parts {
        match part {
            DemoStep::Say(text) => out.push_str(text),
            DemoStep::Show {
                sample,
                unwinders,
                memory,
                words,
            } => {
                let filter = Filter {
                    sample: Some(*sample),
                    ..Filter::default()
                };
                let setting = Setting {
                    view: *memory,
                    ..Setting::default()
                };

                // A filter by number leaves one sample, so the closure runs once.
                input.for_each::<RunError>(&filter, &mut |view| {
                    out.push_str(&shown(view, unwinders, &setting, *words)?);
                    Ok(())
                })?;
            }
        }
    }
    Ok(out)
}

/// What the parts say of each sample: the text before its picture; the last one also what is behind it.
pub(super) fn notes(parts: &[DemoStep]) -> Vec<DemoNote> {
    let mut notes: Vec<DemoNote> = Vec::new();
    let mut said = String::new();
    for part in parts {
        match part {
            DemoStep::Say(text) => said.push_str(text),
            DemoStep::Show { sample, .. } => {
                let text = std::mem::take(&mut said);
                match notes.last_mut() {
                    Some(last) if last.sample == *sample => last.text.push_str(&text),
                    _ => notes.push(DemoNote {
                        sample: *sample,
                        text,
                    }),
                }
            }
        }
    }
    if let Some(last) = notes.last_mut() {
        last.text.push_str(&said);
    }
    notes
}

/// The options of `step` that show all that the parts show.
pub(super) fn options(parts: &[DemoStep]) -> Vec<String> {
    let (mut names, mut seen): (Vec<&str>, _) = (Vec::new(), MemoryView::Cpu);
    for part in parts {
        if let DemoStep::Show {
            unwinders, memory, ..
        } = part
        {
            let new = unwinders.iter().filter(|name| !names.contains(name));
            names.extend(new.collect::<Vec<_>>());
            if *memory != MemoryView::Cpu {
                seen = *memory;
            }
        }
    }
    let mut options = vec!["--unwinder".to_owned(), names.join(",")];
    if seen != MemoryView::Cpu {
        options.extend(["--view".to_owned(), seen.to_string()]);
    }
    options
}

fn shown(
    view: &View<'_>,
    unwinders: &[&str],
    setting: &Setting,
    words: bool,
) -> Result<String, RunError> {
    let mut walks: Vec<(&str, Outcome)> = Vec::new();
    for name in unwinders {
        // A cache of its own for each walk: no walk of a demo may profit from an earlier one.
        let engine = spec::engine(name)?;
        let outcome = engine.examine(view, Variant::Hardware, setting, &mut Cache::new());
        walks.push((name, outcome));
    }

    let walked: Vec<DrawnWalk<'_>> = walks
        .iter()
        .map(|(name, outcome)| DrawnWalk { name, outcome })
        .collect();

    let text = if words {
        picture(view, &walked, setting, Hidden::Nothing)
    } else {
        chains(view, &walked)
    };

    // An empty line stays empty: indented, it would end in spaces.
    let line = |line: &str| {
        if line.is_empty() {
            "\n".to_owned()
        } else {
            format!("  {line}\n")
        }
    };
    Ok(text.lines().map(line).collect())
}
