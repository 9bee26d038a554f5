//! perf.data recordings to replay: made by `perf record` when a bench starts, or read from the
//! directory `UNWIND_SIM_BENCH_DATA`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs::{self, FramePointer, Scratch};

const DATA_DIR: &str = "UNWIND_SIM_BENCH_DATA";
const HZ: &str = "20000";
const DUMP_8K: &str = "dwarf,8192";
const DUMP_16K: &str = "dwarf,16384";
const PYTHON_WORK: &str = "import json\n\
    def f(n): return 0 if n == 0 else 1 + f(n - 1)\n\
    for _ in range(300): json.loads(json.dumps([{str(i): f(i % 20)} for i in range(60)]))\n\
    for _ in range(30): sorted(range(300), key=lambda x: f(15))\n";
const SQL_WORK: &str = "with recursive n(x) as (select 1 union all select x + 1 from n \
    where x < 150000) select count(*), sum(length(hex(x * 7919))) from n where hex(x) like '%3%';";

/// What to run while perf records.
enum Workload {
    /// A program of `benches/programs/` and its argument.
    Own(&'static str, &'static str),
    /// A program of the system; its output is discarded.
    System(&'static str, &'static [&'static str]),
}

/// A recording to make.
pub(crate) struct RecordingSpec {
    pub(crate) name: &'static str,
    /// Whether it is larger than any cache.
    pub(crate) big: bool,
    dump: &'static str,
    workload: Workload,
}

/// The recordings of the benches: one of about 700 MB, and small ones of several kinds.
pub(crate) const RECIPES: [RecordingSpec; 7] = [
    RecordingSpec {
        name: "recurse-big",
        big: true,
        dump: DUMP_8K,
        workload: Workload::Own("recurse", "750000"),
    },
    RecordingSpec {
        name: "recurse-small",
        big: false,
        dump: DUMP_8K,
        workload: Workload::Own("recurse", "20000"),
    },
    // Fits in a second-level cache.
    RecordingSpec {
        name: "recurse-tiny",
        big: false,
        dump: DUMP_8K,
        workload: Workload::Own("recurse", "1500"),
    },
    RecordingSpec {
        name: "calltree-small",
        big: false,
        dump: DUMP_8K,
        workload: Workload::Own("calltree", "10000"),
    },
    RecordingSpec {
        name: "python3.16k",
        big: false,
        dump: DUMP_16K,
        workload: Workload::System("/usr/bin/python3", &["-c", PYTHON_WORK]),
    },
    RecordingSpec {
        name: "sqlite3.16k",
        big: false,
        dump: DUMP_16K,
        workload: Workload::System("/usr/bin/sqlite3", &[":memory:", SQL_WORK]),
    },
    RecordingSpec {
        name: "git.8k",
        big: false,
        dump: DUMP_8K,
        workload: Workload::System(
            "git",
            &[
                "-C",
                env!("CARGO_MANIFEST_DIR"),
                "--no-pager",
                "log",
                "-p",
                "--stat",
            ],
        ),
    },
];

/// The recording's file; `Err` says why it is missing.
pub(crate) fn obtain(scratch: &Scratch, recipe: &RecordingSpec) -> Result<PathBuf, String> {
    let file = format!("{}.perf.data", recipe.name);
    if let Some(dir) = std::env::var_os(DATA_DIR) {
        let ready = Path::new(&dir).join(&file);
        if ready.exists() {
            return Ok(ready);
        }
    }

    let output = scratch.join(&file);
    let mut perf = Command::new("perf");

    // A software event needs no PMU, and large buffers lose fewer samples.
    perf.args([
        "record",
        "-q",
        "-e",
        "cpu-clock:u",
        "-F",
        HZ,
        "-m",
        "16M",
        "--call-graph",
    ]);

    // The peer cannot unwind the dynamic linker's lazy binding, where a short process spends much of
    // its time.
    perf.env("LD_BIND_NOW", "1");
    perf.arg(recipe.dump).arg("-o").arg(&output).arg("--");

    match &recipe.workload {
        Workload::Own(name, argument) => perf
            .arg(programs::compile(scratch, name, FramePointer::Omit)?)
            .arg(argument),
        Workload::System(program, arguments) => perf.arg(program).args(*arguments),
    };

    programs::run(&mut perf).map_err(|reason| {
        format!(
            "{reason} (requires perf, package linux-perf; permission to use it, \
             /proc/sys/kernel/perf_event_paranoid at most 2; and the recorded program)"
        )
    })?;

    Ok(output)
}
