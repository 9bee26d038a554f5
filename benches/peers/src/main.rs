//! Compares the emulated machine with other emulators, on the same programs, in the same run.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml`
//!
//! Needs cc, `/usr/bin/sqlite3` and `/usr/bin/lua5.4`; Blink takes part if it is installed. Results
//! and instruction counts must be equal before anything is timed. Times are CPU times without
//! loading the program. All emulators take turns, and the best of several rounds counts, since
//! other work can only slow a program down. `flat` has programs without a kernel, `record` and
//! `replay` those that need one. Not here: peers with a licence like ours.

mod blink;
mod flat;
mod record;
mod replay;
mod timing;

use flat::RunResult;
use record::Program;
use replay::ObserverMode;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use timing::{Run, interleaved, mean};

/// Goal for our speed relative to Unicorn with a hook for every instruction.
const HOOK_GOAL: f64 = 5.5;
/// The same without any hook.
const BARE_GOAL: f64 = 1.7;
const MWEMU_GOAL: f64 = 7.0;
const BLINK_GOAL: f64 = 3.5;

const SQL: &str = "create table t(id integer primary key, name text, amount real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
insert into t select i, 'name ' || (i * 7919 % 5003), i * 0.25 from n;
create index by_name on t(name);
select count(*), sum(amount), max(name) from t where name like 'name 1%';
select a.name, count(*), avg(b.amount) from t a join t b on a.name = b.name
group by a.name order by 2 desc, 1 limit 5;
update t set amount = amount * 2 where id % 3 = 0;
select sum(length(name)), total(amount) from t;";

const LUA: &str = "local t = {}
for i = 1, 20000 do t[i] = (i * 7919) % 10007 end
table.sort(t)
local s = 0
for i = 1, #t do s = s + t[i] * i % 13 end
local p = {}
for i = 1, 2000 do p[#p + 1] = string.format('%d:%x', i, i * i) end
local str = table.concat(p, ',')
local n = 0
for w in str:gmatch('%x+') do n = n + #w end
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(s, n, #str, fib(20))";

const PROGRAMS: [Program<'_>; 2] = [
    Program {
        name: "sqlite",
        args: &["/usr/bin/sqlite3", "-batch", ":memory:", SQL],
    },
    Program {
        name: "lua",
        args: &["/usr/bin/lua5.4", "-e", LUA],
    },
];

/// Ratios of our speed to theirs, for all programs so far.
#[derive(Default)]
struct Ratios {
    /// Ours without a hook, Unicorn with a code hook.
    hooked: Vec<f64>,
    /// Both with a hook for every instruction.
    both: Vec<f64>,
    /// Both without a hook.
    bare: Vec<f64>,
    mwemu: Vec<f64>,
    blink: Vec<f64>,
}

/// CPU times of one program.
struct Times {
    ours: Duration,
    ours_hooked: Duration,
    unicorn: Duration,
    unicorn_hooked: Duration,
    mwemu: Option<Duration>,
    blink: Option<Duration>,
}

impl Ratios {
    fn add(&mut self, name: &str, instructions: u64, times: &Times) {
        let rate = |time: Duration| instructions as f64 / time.as_secs_f64() / 1e6;
        let shown = |time: Option<Duration>| time.map_or("-".into(), |t| format!("{:.1}", rate(t)));
        println!(
            "{name:<7}{instructions:>11}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9}{:>9}",
            rate(times.ours),
            rate(times.ours_hooked),
            rate(times.unicorn),
            rate(times.unicorn_hooked),
            shown(times.mwemu),
            shown(times.blink),
        );
        let ratio = |theirs: Duration, ours: Duration| theirs.as_secs_f64() / ours.as_secs_f64();
        self.hooked.push(ratio(times.unicorn_hooked, times.ours));
        self.both
            .push(ratio(times.unicorn_hooked, times.ours_hooked));
        self.bare.push(ratio(times.unicorn, times.ours));
        self.mwemu
            .extend(times.mwemu.map(|theirs| ratio(theirs, times.ours)));
        self.blink
            .extend(times.blink.map(|theirs| ratio(theirs, times.ours)));
    }
}

fn flat(which: usize, program: &[u8], blink: Option<&Path>) -> (RunResult, Times) {
    let number = which as u64;
    let (answer, _) = flat::ours(program, number, false);
    let name = flat::PROGRAMS[which];

    // All results and counts are equal before any time is taken.
    assert_eq!(answer, flat::ours(program, number, true).0, "{name}");
    assert_eq!(
        answer,
        flat::unicorn(program, number, true).0,
        "{name}: Unicorn"
    );
    assert_eq!(answer, flat::mwemu(program, number).0, "{name}: libmwemu");
    // Of Blink, only the result is known.
    if let Some(blink) = blink {
        assert_eq!(answer.rax, blink::run(blink, number).0, "{name}: Blink");
    }

    // The order is that in which the times come back.
    let runs: [Run<'_>; 6] = [
        Box::new(|| flat::ours(program, number, false).1),
        Box::new(|| flat::unicorn(program, number, false).1),
        Box::new(|| flat::ours(program, number, true).1),
        Box::new(|| flat::unicorn(program, number, true).1),
        Box::new(|| flat::mwemu(program, number).1),
        Box::new(|| blink.map_or(Duration::ZERO, |blink| blink::run(blink, number).1)),
    ];

    let [
        ours,
        unicorn,
        ours_hooked,
        unicorn_hooked,
        mwemu,
        interpreted,
    ] = interleaved(runs);

    let times = Times {
        ours,
        ours_hooked,
        unicorn,
        unicorn_hooked,
        mwemu: Some(mwemu),
        blink: blink.map(|_| interpreted),
    };

    (answer, times)
}

fn with_kernel(program: &Program<'_>) -> (u64, Times) {
    let recording = record::record(program);
    let native = Command::new(program.args[0])
        .args(&program.args[1..])
        .output();
    let native = native.expect("it runs without an emulator").stdout;

    // A wrong run would be no measure.
    assert_eq!(recording.stdout, native, "{}: the processor", program.name);

    // First with the registers and the memory compared; nothing of this run is measured.
    replay::unicorn(&recording, ObserverMode::Compare);

    let runs: [Run<'_>; 4] = [
        Box::new(|| record::ours(program, &recording, false)),
        Box::new(|| replay::unicorn(&recording, ObserverMode::Bare)),
        Box::new(|| record::ours(program, &recording, true)),
        Box::new(|| replay::unicorn(&recording, ObserverMode::Hook)),
    ];
    let [ours, unicorn, ours_hooked, unicorn_hooked] = interleaved(runs);

    let times = Times {
        ours,
        ours_hooked,
        unicorn,
        unicorn_hooked,
        mwemu: None,
        blink: None,
    };
    (recording.instructions(), times)
}

/// The locked version of a dependency of this package.
fn version(package: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let name = format!("name = \"{package}\"\nversion = \"");
    let rest = lock.split_once(&name).map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or("")
}

fn main() {
    // Two builds: one that ends with `hlt` for emulators without a kernel, and a process for Blink.
    let bare = flat::build(false);
    let process = flat::build(true);
    let program = std::fs::read(&bare).expect("cc wrote it");
    let blink = blink::version();

    println!("instructions per microsecond of CPU; every result and count compared first");
    println!(
        "{:<7}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "", "insns", "ours", "hooked", "unicorn", "hooked", "mwemu", "blink -j"
    );

    // Ratios are averaged, not times, or the longest program would decide.
    let mut ratios = Ratios::default();
    for (which, name) in flat::PROGRAMS.iter().enumerate() {
        let (answer, times) = flat(which, &program, blink.as_ref().map(|_| process.as_path()));
        ratios.add(name, answer.instructions, &times);
    }

    // Real programs, whose system calls are answered from a recording.
    for program in &PROGRAMS {
        let (instructions, times) = with_kernel(program);
        ratios.add(program.name, instructions, &times);
    }
    let _ = (std::fs::remove_file(bare), std::fs::remove_file(process));

    println!("geometric means of the ratios, ours / theirs:");
    println!("  Unicorn {}, on all programs:", version("unicorn-engine"));
    let hooked = mean(&ratios.hooked);
    println!("    ours without checks, Unicorn with a code hook  {hooked:.2} (goal {HOOK_GOAL})");
    println!(
        "    both with a hook for every instruction         {:.2}",
        mean(&ratios.both)
    );
    println!(
        "    both without                                   {:.2} (goal {BARE_GOAL})",
        mean(&ratios.bare)
    );

    let mwemu = mean(&ratios.mwemu);
    let version = version("libmwemu");
    println!("  libmwemu {version}, without a kernel  {mwemu:.2} (goal {MWEMU_GOAL})");

    // Blink is a program that has to be installed; the others are linked.
    match blink {
        Some(version) => {
            let ratio = mean(&ratios.blink);
            println!("  {version}, interpreting, without a kernel  {ratio:.2} (goal {BLINK_GOAL})");
        }
        None => println!("  Blink: not installed, so not measured"),
    }
}
