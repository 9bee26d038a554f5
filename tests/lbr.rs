//! Compares chains from branch records with the truth: programs in the emulated machine, with rings
//! of several depths. The table in `docs/lbr.md` is computed here.

use std::path::{Path, PathBuf};
use unwind_sim_emulator::linux;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::input::{Input, InputError};
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::{cases, spec};
use unwind_sim_perf_lbr::{Depth, Storage};
use unwind_sim_record::emulator::{self, EmulatorOptions, Lbr};
use unwind_sim_record::{At, Plan, TraceRecorder};
use unwind_sim_recordings::trace::{Meta, Trace, TraceWriter};
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::FoundBy;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::verdict::{Verdict, align_chain};
use unwind_sim_view::explain;
use unwind_sim_view::listing::ListingLength;

const RECURSION: &str = "frame/recursion-gives-the-same-pc-many-times";
const LONGJMP: &str = "transfer/longjmp-leaves-frames-behind";

/// Records the case's program with a sample every `every` instructions.
fn record(case: &str, every: u64, lbr: &[Depth]) -> Input {
    let path = PathBuf::from(format!("corpus/cases/{case}.s"));
    let built = cases::build_case(&path, false).expect("the case can be built");
    record_program(&built.path, b"case", every, lbr)
}

/// Records a program; `name` is its only argument.
fn record_program(path: &Path, name: &[u8], every: u64, lbr: &[Depth]) -> Input {
    let program = RunningProgram {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        options: linux::ProcessOptions {
            // The program's path is a temporary one, which must not change its stack.
            args: vec![name.to_vec()],
            ..linux::ProcessOptions::default()
        },
    };

    let options = EmulatorOptions {
        plan: Plan {
            // A program that does not end must not stop the test.
            max_instructions: Some(100_000),
            stack_bytes: 1 << 16,
            ..Plan::new(At::Every(every))
        },
        lbr: Lbr {
            depths: lbr.to_vec(),
            storage: Storage::PerTask,
        },
        timeout: None,
    };

    let meta = Meta {
        truth: "from the start".into(),
        ..Meta::default()
    };

    let mut writer = TraceWriter::new(Vec::new(), &meta).expect("it is written to memory");
    let mut recorder = TraceRecorder::new(&mut writer, emulator::finder_options(Path::new("/")));
    emulator::record(program, &options, &mut recorder).expect("it runs");

    // The code is in the trace, since the program's file is gone later.
    recorder.write_text().expect("it is written to memory");
    let bytes = writer.finish().expect("it is written to memory");
    Input::from_trace(Trace::from_bytes(bytes).expect("it was written just now"))
}

fn run(names: &[&str]) -> Run {
    let engine = |name: &&str| spec::engine(name).expect("a known unwinder");
    Run {
        engines: names.iter().map(engine).collect(),
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: Default::default(),
    }
}

/// The result of one column for a sample.
struct ColumnResult {
    verdict: Verdict,
    code: Code,
    /// Number of true frames, and which were found; number of wrong frames, and of stitched ones.
    truth: usize,
    hits: Vec<usize>,
    invented: usize,
    stitched: usize,
}

fn walk(input: &Input, name: &str) -> Vec<ColumnResult> {
    let mut all = Vec::new();
    let mut take = |view: &unwind_sim_recordings::view::View<'_>,
                    _: usize,
                    outcome: &unwind_sim_judge::engine::Outcome| {
        let (chain, truth) = (&outcome.chain, &view.sample.truth);
        let aligned = align_chain(chain, truth, outcome.from);
        let stitched = |found: &FoundBy| matches!(found, FoundBy::Branch { stitched: true, .. });
        all.push(ColumnResult {
            verdict: outcome.verdict,
            code: chain.end.reason.code(),
            truth: truth.frames().len(),
            invented: aligned.iter().filter(|hit| hit.is_none()).count(),
            hits: aligned.into_iter().flatten().collect(),
            stitched: chain.frames.iter().filter(|f| stitched(&f.found)).count(),
        });
        Ok(())
    };
    run(&[name])
        .for_each(input, &Filter::default(), &mut take)
        .expect("the trace is whole");
    all
}

fn explained(input: &Input, sample: usize, name: &str) -> String {
    let engine = spec::engine(name).expect("a known unwinder");
    let filter = Filter {
        sample: Some(sample as u64),
        // Only some unwinders want the records of earlier samples.
        stitch: engine.wants_stitching(),
        ..Filter::default()
    };
    let mut text = String::new();

    let mut take = |view: &unwind_sim_recordings::view::View<'_>| {
        let (setting, variant) = (Setting::default(), Variant::Hardware);
        let outcome = engine.examine(view, variant, &setting, &mut Cache::new());
        let walk = explain::Walk {
            engine: &engine,
            variant,
            setting: &setting,
            outcome: &outcome,
        };
        text = explain::explain(view, &walk, None, ListingLength::All);
        Ok(())
    };

    input
        .for_each::<InputError>(&filter, &mut take)
        .expect("it is there");
    text
}

#[test]
fn a_chain_that_fits_is_right_and_one_that_does_not_is_cut_at_the_depth() {
    let input = record(RECURSION, 1, &Depth::ALL);
    for depth in Depth::ALL {
        let entries = depth.entries();
        let walked = walk(&input, &format!("lbr:{entries}"));
        let deepest = walked.iter().position(|w| w.truth == 42).expect("41 calls");

        // While the recursion descends, the ring holds the newest calls.
        for w in &walked[..deepest] {
            let all = 1 + entries;
            if w.truth <= all {
                assert_eq!(w.verdict, Verdict::Ok, "{} frames", w.truth)
            } else {
                assert_eq!((w.verdict, w.code), (cut(all), Code::LbrDepth))
            }
            assert!(w.invented == 0 && w.hits.iter().copied().eq(0..w.hits.len()));
        }

        // While it returns, overwritten records stay lost though there is room, except for the
        // root.
        let lost = |w: &&ColumnResult| w.verdict.letter() == 't' && w.code == Code::NotAtRoot;
        assert!(walked[deepest..].iter().filter(lost).count() > 20);
        assert_eq!(walked.last().expect("some").verdict, Verdict::Ok);
        assert!(walked.iter().all(|w| w.invented == 0));
    }

    let at = walk(&input, "lbr").iter().position(|w| w.truth == 42);
    let text = explained(&input, at.expect("41 calls"), "lbr:16");
    assert!(
        text.contains("US302 LBR depth: only 16 branch records"),
        "{text}"
    );
    assert!(text.contains("by the record of the call at 0x"), "{text}");
}

fn cut(all: usize) -> Verdict {
    Verdict::Truncated { at: all as u32 }
}

#[test]
fn calls_that_a_longjmp_left_stay_in_the_ring() {
    let input = record(LONGJMP, 1, &[Depth::ThirtyTwo]);
    let walked = walk(&input, "lbr");
    let first = walked.iter().position(|w| w.verdict != Verdict::Ok);
    let first = first.expect("it jumps");
    assert_eq!(walked[first].verdict, Verdict::Extra { count: 2, at: 1 });
    let text = explained(&input, first, "lbr");
    assert!(
        text.contains("was left in a way that the ring did not see"),
        "{text}"
    );
    // From there on every chain is wrong: the ring stays off by one.
    assert!(walked[first..].iter().all(|w| w.verdict.is_wrong()));
}

#[test]
fn an_interrupted_function_is_missing_below_its_handler() {
    let input = record(
        "signal/signal-frame-on-the-normal-stack",
        1,
        &[Depth::ThirtyTwo],
    );
    let walked = walk(&input, "lbr");
    let missing = walked.iter().find(|w| w.verdict.letter() == 'm');
    assert_eq!(missing.expect("in the handler").invented, 0);
}

/// Executes itself once with one argument more, two calls deep, and then calls `inner`. A call of the
/// next instruction would be no call to the processor.
const EXEC: &str = "
.globl _start, outer, deep, inner
_start: mov 8(%rsp), %rdi
cmpq $1, (%rsp)
jne second
call outer
hlt
outer: call deep
hlt
deep: push $0
push %rdi
push %rdi
mov %rsp, %rsi
xor %edx, %edx
mov $59, %eax
syscall
hlt
second: call inner
mov $60, %eax
xor %edi, %edi
syscall
inner: ret
";

#[test]
fn execve_leaves_the_ring_alone_in_the_machine_and_in_the_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("exec.s"), folder.path().join("exec"));
    std::fs::write(&source, EXEC).expect("a source");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-nostdlib", "-static", "-no-pie", "-o"])
        .arg(&program);
    assert!(cc.arg(&source).status().expect("cc is installed").success());
    let name = program.as_os_str().as_encoded_bytes();
    let input = record_program(&program, name, 1, &[Depth::Eight]);
    let mut counts = Vec::new();
    let mut take = |view: &unwind_sim_recordings::view::View<'_>| {
        counts.push(view.sample.branches[0].entries.len());
        Ok::<(), InputError>(())
    };
    input
        .for_each(&Filter::default(), &mut take)
        .expect("the trace is whole");
    // The first program calls twice, the second one once more, and that call returns.
    counts.dedup();
    assert_eq!(counts, [0, 1, 2, 3, 2]);

    // The model's expected output has three records, too.
    let scenario = "corpus/scenarios/lbr/execve-keeps-the-records.txt";
    let text = std::fs::read_to_string(scenario).expect("a scenario");
    assert!(text.contains("=   sample 1 of 1: 3 of 1 calls:"), "{text}");
}

#[test]
fn without_branch_records_nothing_is_invented() {
    let without = walk(&record(LONGJMP, 1, &[]), "lbr");
    let other = walk(&record(LONGJMP, 1, &[Depth::Eight]), "lbr:32");
    for w in without.iter().chain(&other) {
        assert_eq!(w.verdict, Verdict::Unsupported);
        assert_eq!(w.code, Code::NoBranchRecords);
    }
}

#[test]
fn a_stitched_chain_is_the_same_whichever_samples_are_wanted() {
    let input = record(RECURSION, 7, &[Depth::Eight]);
    let all = walk(&input, "lbr:stitch");
    let number = all.iter().position(|w| w.stitched > 9).expect("a deep one");
    let alone = Filter {
        sample: Some(number as u64),
        ..Filter::default()
    };
    let mut frames = Vec::new();
    run(&["lbr:stitch"])
        .for_each(&input, &alone, &mut |view, _, outcome| {
            frames.push((view.number, outcome.chain.frames.len()));
            Ok(())
        })
        .expect("the trace is whole");
    assert_eq!(frames, [(number as u64, 9 + all[number].stitched)]);
}

/// Checks the rows of the table in `docs/lbr.md`.
#[test]
fn the_page_says_what_stitching_gives() {
    let cases = [
        RECURSION,
        "frame/two-functions-call-one-recursion",
        LONGJMP,
        "transfer/longjmp-out-of-a-recursion-into-another-one",
        "signal/longjmp-out-of-a-handler",
        "signal/signal-frame-on-the-normal-stack",
        "transfer/coroutine-switch-changes-the-stack",
        "transfer/retpoline-returns-to-a-place-nobody-called-from",
        "transfer/push-and-ret-is-a-jump",
    ];

    let page = std::fs::read_to_string("docs/lbr.md").expect("the page is there");
    let mut absent = String::new();
    for case in cases {
        // A sample at each instruction, and seldom enough that records are lost between samples.
        for every in [1, 7] {
            // The shortest ring loses frames that stitching can give back.
            let input = record(case, every, &[Depth::Eight]);
            let [plain, stitched] = ["lbr", "lbr:stitch"].map(|name| walk(&input, name));
            let right =
                |all: &[ColumnResult]| all.iter().filter(|w| w.verdict == Verdict::Ok).count();

            // True frames that were not found; invented ones were found and are not true.
            let missing = |all: &[ColumnResult]| -> usize {
                all.iter().map(|w| w.truth - w.hits.len()).sum()
            };
            let invented = |all: &[ColumnResult]| -> usize { all.iter().map(|w| w.invented).sum() };

            let row = format!(
                "| {} | {every} | {} | {} | {} | {} | {} | {} | {} |\n",
                case.split('/').next_back().unwrap_or(case),
                plain.len(),
                right(&plain),
                right(&stitched),
                missing(&plain),
                missing(&stitched),
                invented(&plain),
                invented(&stitched),
            );

            // All rows are checked before the test fails, so that the page can be updated at once.
            if !page.contains(&row) {
                absent.push_str(&row);
            }
        }
    }
    assert!(absent.is_empty(), "docs/lbr.md has no such rows:\n{absent}");
}

#[test]
fn the_names_of_its_profiles() {
    for name in ["lbr", "lbr:8", "lbr:stitch", "lbr:32-stitch"] {
        let engine = spec::engine(name).expect("a known unwinder");
        assert_eq!(engine.name(), name);
        assert!(matches!(engine, Engine::Other(_)) && !engine.needs_stack());
    }
    for name in [
        "lbr:",
        "lbr:0",
        "lbr:x",
        "lbr:-stitch",
        "lbr:8stitch",
        "lbr:stitch-8",
    ] {
        assert!(spec::engine(name).is_err(), "{name}");
    }
}
