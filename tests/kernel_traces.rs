//! Recordings of real kernels in `corpus/kernel/`, made by `tests/kernel/boot.sh` and `extract
//! --scrub`. They contain only the kernels' rows and symbols that the walks use, and no code. Two
//! kernels are built with another unwinder (docs/captures.md). The callchains of 6.12 are those of
//! `tests/kernel/callchains.c`, once recorded before what the kernel was asked for was.

use std::fmt::Write as _;
use std::path::Path;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::{Input, InputError};
use unwind_sim_judge::kernel::{Agreement, Shapes, perf_chain, recorded_options};
use unwind_sim_judge::run::{Against, Run, head};
use unwind_sim_judge::spec;
use unwind_sim_judge::unwinders;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::kernel::{
    CallchainEntry, CallchainOptions, Hijack, UserEnd, UserFound, UserOutcome, UserWalk,
};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::{FakeVariant, Variant};
use unwind_sim_unwind::verdict::Verdict;
use unwind_sim_view::text::comparison_text;

/// Recordings, and the index of each kernel's own unwinder in [`unwinders::KERNEL`].
const RELEASES: [(&str, usize); 6] = [
    ("5.10", 0),
    ("6.1", 0),
    ("6.12", 0),
    ("6.12-fp", 1),
    ("6.12-guess", 2),
    ("7.2", 0),
];

fn open(name: &str) -> Input {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/kernel");
    let options = OpenOptions::default();
    Input::open(&folder.join(name), &options).expect("a trace of the repository")
}

fn run(against: Against) -> Run {
    Run {
        engines: spec::engines(&unwinders::KERNEL.map(str::to_owned)).expect("they are ours"),
        variants: Vec::new(),
        setting: Setting::default(),
        against,
        group_by: GroupBy::Function,
    }
}

#[test]
fn every_state_is_the_kernels() {
    for (release, own) in RELEASES {
        let (run, input) = (
            run(Against::Kernel),
            open(&format!("{release}-unwinds.bin")),
        );
        let mut states = 0;
        run.for_each(&input, &Filter::default(), &mut |view, column, outcome| {
            let kernel = view.sample.kernel.as_ref().expect("a kernel's sample");
            if column == own {
                states += kernel.states.len();
                assert_eq!(
                    outcome.verdict,
                    Verdict::Ok,
                    "{release}: sample {}",
                    view.number
                );
            }
            Ok(())
        })
        .expect("a sound trace");
        assert!(states > 200, "{release}: {states}");
    }
}

/// Fake and hardware registers, in the kernel and in user space, kernel threads, 32-bit and 64-bit
/// programs, uprobes at a function's entry, and chains cut by `max_stack`.
#[test]
fn every_callchain_is_what_perf_stored() {
    let input = open("6.1-callchains.bin");
    let engine = spec::engine("orc:kernel").expect("it is ours");
    let (setting, mut cache) = (Setting::default(), Cache::new());
    let (mut entries, mut at_entry, mut compat, mut full, mut without) = (0, 0, 0, 0, 0);

    input
        .for_each::<InputError>(&Filter::default(), &mut |view| {
            let variant = if view.sample.regs.is_fake() { Variant::Fake(FakeVariant::V5_2) } else { Variant::Hardware };

            let options = CallchainOptions::default();
            let chain = perf_chain(view, &engine, variant, &setting, options, &mut cache);
            let ips = chain.callchain.ips();
            assert_eq!(ips, view.sample.recorded[0].ips, "sample {}", view.number);

            entries += ips.len();
            let is_entry = |e: &CallchainEntry| {
                matches!(e, CallchainEntry::User(f) if matches!(f.found, UserFound::Entry { .. }))
            };
            at_entry += usize::from(chain.callchain.entries.iter().any(is_entry));

            let space = view.sample.user_space().expect("it is recorded");
            let cs = space.regs.and_then(|regs| regs.get(Reg::Cs));
            // 0x23 is `__USER32_CS`: a program of 32 bits.
            compat += usize::from(cs == Some(0x23));
            without += usize::from(chain.callchain.user == UserOutcome::NoUserSpace);
            // 127 is `PERF_MAX_STACK_DEPTH`, the kernel's own limit.
            let max = UserEnd::MaxStack { max: 127 };
            full += usize::from(chain.callchain.user == UserOutcome::Walked(max));
            Ok(())
        })
        .expect("a sound trace");

    assert_eq!(input.sample_count(), Some(40));
    assert!(entries > 500, "{entries}");
    // A recording without such samples would prove nothing about them.
    let kinds = [at_entry, compat, full, without];
    assert!(kinds.iter().all(|count| *count > 1), "{kinds:?}");
}

/// What perf and BPF helpers asked for, and which return addresses return probes took, is in the
/// recording: `sample_max_stack` 4 and 9, `exclude_callchain_kernel` and `_user`, chains without
/// markers.
#[test]
fn every_callchain_is_what_the_kernel_was_asked_for() {
    let input = open("6.12-callchains.bin");
    let engine = spec::engine("orc:kernel").expect("it is ours");
    let (setting, mut cache) = (Setting::default(), Cache::new());
    let (mut limits, mut no_kernel, mut no_user, mut no_marks) = (Vec::new(), 0, 0, 0);
    let mut put_back = 0;

    input
        .for_each::<InputError>(&Filter::default(), &mut |view| {
            let variant = if view.sample.regs.is_fake() {
                Variant::Fake(FakeVariant::V5_2)
            } else {
                Variant::Hardware
            };
            assert!(view.sample.recorded[0].request.is_some());

            // What was asked for is in the sample.
            let options = recorded_options(view, CallchainOptions::default());
            let chain = perf_chain(view, &engine, variant, &setting, options, &mut cache);
            let ips = chain.callchain.ips();
            assert_eq!(ips, view.sample.recorded[0].ips, "sample {}", view.number);

            limits.push(options.max_stack);
            no_kernel += usize::from(!options.kernel);
            no_user += usize::from(options.user == UserWalk::None);
            no_marks += usize::from(!options.add_mark);
            put_back += chain
                .callchain
                .entries
                .iter()
                .filter(|e| is_put_back(e))
                .count();
            Ok(())
        })
        .expect("a sound trace");

    limits.sort_unstable();
    limits.dedup();
    // 18: a helper that skips two of 16. 127: the kernel's own limit.
    assert_eq!(limits, [4, 9, 16, 18, 127]);

    // A recording without such requests would prove nothing about them.
    let kinds = [no_kernel, no_user, no_marks];
    assert!(kinds.iter().all(|count| *count > 1), "{kinds:?}");
    assert!(put_back > 50, "{put_back}");
}

fn is_put_back(entry: &CallchainEntry) -> bool {
    matches!(entry, CallchainEntry::User(frame) if frame.hijack == Hijack::PutBack)
}

/// The same program, recorded without what was asked for and without the list of return probes:
/// nothing is called different for that.
#[test]
fn what_a_recording_does_not_say_is_not_a_difference() {
    let input = open("6.12-callchains-unasked.bin");
    let engine = spec::engine("orc:kernel").expect("it is ours");
    let (setting, mut cache) = (Setting::default(), Cache::new());
    let mut shapes = Shapes::default();

    // What was asked for is not known, so everything is assumed.
    let all = CallchainOptions::default();

    // The shapes of all samples must be known before one of them is judged.
    input
        .for_each::<InputError>(&Filter::default(), &mut |view| {
            shapes.add(view);
            Ok(())
        })
        .expect("a sound trace");

    let mut found = std::collections::BTreeMap::new();
    input
        .for_each::<InputError>(&Filter::default(), &mut |view| {
            let variant = if view.sample.regs.is_fake() {
                Variant::Fake(FakeVariant::V5_2)
            } else {
                Variant::Hardware
            };

            let chain = perf_chain(view, &engine, variant, &setting, all, &mut cache);
            let agreement = chain.agreement(view, &setting, all, Some(&shapes));
            let kind = match agreement.expect("perf recorded a chain") {
                Agreement::Cut(most) => format!("cut at {most}"),
                Agreement::Taken(_) => "taken".to_owned(),
                other => other.as_str().to_owned(),
            };
            *found.entry(kind).or_insert(0) += 1;
            Ok(())
        })
        .expect("a sound trace");

    let found: Vec<_> = found.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();

    // No kind in this list is a difference.
    assert_eq!(
        found,
        [("cut at 4", 3), ("cut at 9", 3), ("fits", 6), ("taken", 18)]
    );
}

#[test]
fn what_is_wrong_at_each_instruction() {
    let mut out = String::new();
    for (release, own) in RELEASES {
        for start in ["entry_SYSCALL_64", "asm_exc_page_fault"] {
            let name = format!("{release}-{start}.bin");
            let run = run(Against::Truth);
            let comparison = run.compare(&open(&name), &Filter::default());
            let comparison = comparison.expect("a sound trace");
            let names = run.column_names();
            // The bare name, so that the snapshot does not depend on the folder.
            let explain = |column: usize, sample: u64| {
                let unwinder = &names[column];
                format!("unwind-sim explain {name} --sample {sample} --unwinder {unwinder}")
            };

            let text = comparison_text(&comparison, &names, &explain, true);
            // Only the counts of an unwinder that such a kernel does not have.
            let first = format!("\n{}: first", unwinders::KERNEL[own]);
            let (counts, _) = text.split_once("\n\n").unwrap_or((&text, ""));
            let (_, causes) = text.split_once(&first).unwrap_or((&text, ""));
            // Up to the causes of the next unwinder, whose heading is cut off with it.
            let causes = causes.split(":kernel: first").next().unwrap_or("");
            let causes = causes
                .rsplit_once("\n\n")
                .map_or(causes, |(causes, _)| causes);

            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{name}: {}\n{counts}\n{first}{causes}\n",
                head(&run, &comparison)
            );
        }
    }

    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("kernel-traces", out) });
}
