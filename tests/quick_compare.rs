//! What a comparison leaves out to be quick changes nothing: the rules that are not applied again,
//! and the frames that are not kept.

use std::path::{Path, PathBuf};
use unwind_sim_judge::check::{Subject, true_frame};
use unwind_sim_judge::compare::{Comparison, GroupBy};
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::input::{Input, InputError};
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::spec;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::model::Item;
use unwind_sim_recordings::trace::{Trace, TraceWriter};
use unwind_sim_recordings::view::{Filter, MemoryView};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::start::{FakeVariant, Variant};

const NAMES: [&str; 9] = [
    "dwarf",
    "sframe",
    "sframe:kernel-v3",
    "orc",
    "fp",
    "guess",
    "lbr",
    "dwarf+fp",
    "sframe+fp",
];

/// A trace of more samples is read with every [`NTH`] of them, unless `UNWIND_SIM_SLOW=1` is set: one
/// has 2,920, which are of few kinds, and all others together have 17.
const SAMPLES_MAX: u64 = 500;
const NTH: u64 = 7;

/// A trace with all events and every [`NTH`] sample.
fn thinned(path: &Path) -> Input {
    let trace = Trace::open(path).expect("a trace");
    let mut writer = TraceWriter::new(Vec::new(), trace.meta()).expect("a writer");
    for image in trace.images() {
        writer.add_image(image).expect("an image");
    }
    let mut samples = 0;
    for item in trace.items() {
        let item = item.expect("an item");
        if matches!(item, Item::Sample(_)) {
            samples += 1;
            if samples % NTH != 1 {
                continue;
            }
        }
        writer.item(&item).expect("written");
    }
    let bytes = writer.finish().expect("a trace");
    Input::from_trace(Trace::from_bytes(bytes).expect("a trace"))
}

/// Every trace of the corpus: wrong rows, signals, throws, corrupted copies, a kernel's stacks.
fn traces() -> Vec<Input> {
    let folder = std::fs::read_dir(Path::new("corpus/traces")).expect("a folder");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .collect();
    paths.sort();
    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();
    let open = |path: &PathBuf| {
        let trace = Trace::open(path).expect("a trace");
        let samples = trace
            .items()
            .filter(|item| matches!(item, Ok(Item::Sample(_))));
        if !is_slow && samples.count() as u64 > SAMPLES_MAX {
            thinned(path)
        } else {
            Input::open(path, &OpenOptions::default()).expect("a trace")
        }
    };
    paths.iter().map(open).collect()
}

fn engines() -> Vec<Engine> {
    let engine = |name: &&str| spec::engine(name).expect("an unwinder");
    NAMES.iter().map(engine).collect()
}

#[test]
fn a_confirmed_rule_has_no_contradiction() {
    let setting = Setting::default();
    let (mut confirmed, mut refuted) = (0, 0);
    for input in traces() {
        for engine in engines() {
            let Some(finder) = engine.finder() else {
                continue;
            };
            let (mut warm, mut cold) = (Cache::new(), Cache::new());
            let done = input.for_each::<InputError>(&Filter::default(), &mut |view| {
                engine.examine(view, Variant::Hardware, &setting, &mut warm);
                let memory = view.sample.memory();
                let (truth, live) = (&view.sample.truth, view.live());
                let subject = Subject::of(view, &memory, &live);

                for index in 0..truth.frames().len() {
                    let doubt = subject.first_doubt(finder, index..index + 1, &mut warm);
                    let Some(mut frame) = true_frame(truth, &live, index) else {
                        continue;
                    };

                    // Of callers, a finder is given only the registers that it carries.
                    if index > 0 {
                        frame.regs = frame.regs.restricted(finder.carries());
                    }

                    // Its own cache knows no rules by address, so that it applies each in full.
                    let found = subject.check_in(finder, &frame, index, &mut cold);
                    if doubt.is_none() {
                        assert!(found.is_empty(), "{}: {index} {found:?}", finder.name());
                        confirmed += 1;
                    }
                    refuted += usize::from(!found.is_empty());
                }
                Ok(())
            });
            done.expect("it is read");
        }
    }

    // Both have to occur, or the test would show nothing.
    assert!(confirmed > 100 && refuted > 20, "{confirmed} and {refuted}");
}

#[test]
fn outcomes_without_frames_compare_alike() {
    let both = vec![Variant::Hardware, Variant::Fake(FakeVariant::V5_2)];

    // No variants: each sample's own start. With both, samples without fake registers are
    // unsupported.
    let variants = [Vec::new(), both];
    let views = [MemoryView::Cpu, MemoryView::Copy(256)];

    // Also by another chain: from a table, from a scan, and from a table with a fallback.
    let references = [
        None,
        Some("dwarf"),
        Some("fp"),
        Some("guess"),
        Some("dwarf+fp"),
    ];
    let against = |reference: Option<&str>| match reference {
        Some(name) => Against::Engine(spec::engine(name).expect("an unwinder")),
        None => Against::Truth,
    };

    let settings = views.into_iter().zip(variants);
    let cases: Vec<_> = settings
        .flat_map(|setting| references.map(|reference| (setting.clone(), reference)))
        .collect();

    let mut wrong = [0; 5];
    for input in traces() {
        for (case, ((view, variants), reference)) in cases.iter().enumerate() {
            let run = Run {
                engines: engines(),
                variants: variants.clone(),
                setting: Setting {
                    view: *view,
                    ..Setting::default()
                },
                against: against(*reference),
                group_by: GroupBy::Instruction,
            };
            let brief = run.compare(&input, &Filter::default()).expect("it is read");

            let mut whole = Comparison::new(run.columns().len());
            let mut last = None;

            // The long way: each outcome with all of its frames.
            let done = run.for_each(&input, &Filter::default(), &mut |view, column, outcome| {
                if last.replace(view.number) != Some(view.number) {
                    whole.add_sample(view);
                }
                // Each sample comes once for every column, and is counted at the first.
                whole.add(column, view, outcome, run.group_by);
                Ok(())
            });
            done.expect("it is read");

            // By their texts, since no part of a comparison may differ.
            if format!("{brief:?}") != format!("{whole:?}") {
                panic!("{reference:?}: {brief:#?} and {whole:#?}");
            }
            wrong[case % references.len()] += whole.groups.len();
        }
    }

    // There must have been differences to be counted, with each reference.
    assert!(wrong.iter().all(|&groups| groups > 20), "{wrong:?}");
}
