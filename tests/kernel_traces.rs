//! Recordings of real kernels, `corpus/kernel/`: made by `tests/kernel/boot.sh` and `extract --scrub`,
//! so that of the kernels there are only the rows and symbols that the walks use, and no code.

use std::fmt::Write as _;
use std::path::Path;
use unwind_sim::compare::GroupBy;
use unwind_sim::engine::Setting;
use unwind_sim::input::{Filter, Input, OpenOptions};
use unwind_sim::run::{Against, Run, head};
use unwind_sim::spec;
use unwind_sim::text::comparison_text;
use unwind_sim_unwind::verdict::Verdict;

const RELEASES: [&str; 2] = ["6.1", "6.12"];

fn open(name: &str) -> Input {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/kernel");
    let options = OpenOptions::default();
    Input::open(&folder.join(name), &options).expect("a trace of the repository")
}

fn run(against: Against) -> Run {
    Run {
        engines: spec::engines(&spec::KERNEL.map(str::to_owned)).expect("they are ours"),
        variants: Vec::new(),
        setting: Setting::default(),
        against,
        group_by: GroupBy::Function,
    }
}

#[test]
fn every_state_is_the_kernels() {
    for release in RELEASES {
        let (run, input) = (
            run(Against::Kernel),
            open(&format!("{release}-unwinds.bin")),
        );
        let mut states = 0;
        run.for_each(&input, &Filter::default(), &mut |view, column, outcome| {
            let kernel = view.sample.kernel.as_ref().expect("a kernel's sample");
            if column == 0 {
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

#[test]
fn what_is_wrong_at_each_instruction() {
    let mut out = String::new();
    for release in RELEASES {
        for start in ["entry_SYSCALL_64", "asm_exc_page_fault"] {
            let name = format!("{release}-{start}.bin");
            let run = run(Against::Truth);
            let comparison = run.compare(&open(&name), &Filter::default());
            let comparison = comparison.expect("a sound trace");
            let text = comparison_text(&comparison, &run.column_names(), &name, true);
            let orc = text.split("\nfp:kernel: first").next().unwrap_or(&text);
            let _ = writeln!(out, "{name}: {}\n{orc}", head(&run, &comparison));
        }
    }
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("kernel-traces", out) });
}
