//! How long it takes to see a state of a booted kernel: the boot is explored to its end, as `step --kernel`
//! does in the background, and then random states of parts of it are gone to, in both directions.
//!
//! `UNWIND_SIM_BENCH_KERNEL=VMLINUZ cargo bench --bench kernel_states`. The kernel starts the workload
//! that `step --kernel` starts; `UNWIND_SIM_BENCH_STATES=N` ends the boot after N states. All times are
//! processor time. With `--test` nothing is measured.
mod common;

use common::timing::cpu_time;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::system::boot::BootOptions;
use unwind_sim_emulator::system::initramfs;
use unwind_sim_judge::states::States;
use unwind_sim_record::boot::Boot;
use unwind_sim_record::kernel_stacks::KernelPlaces;
use unwind_sim_record::reversible_kernel::{KernelSubject, ReversibleKernel};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::kernel::{self, OpenOptions};

#[path = "../tests/common/random.rs"]
mod random;

const FILE: &str = "UNWIND_SIM_BENCH_KERNEL";
const STATES: &str = "UNWIND_SIM_BENCH_STATES";
const WORKLOAD: &[u8] = include_bytes!("../corpus/workload/workload");
/// The computer of `step --kernel` without options.
const COMMAND_LINE: &str = "console=ttyS0 acpi=off pci=off panic=-1";
const MEMORY: usize = 512 << 20;
/// 1 December 2023.
const CLOCK: u64 = 1_701_388_800;
/// Jumps in each part.
const JUMPS: usize = 200;
const SEED: u64 = 1;
/// States that are explored before somebody looks whether a key was pressed.
const PIECE: u64 = 1 << 22;
/// What a state may take.
const GOAL: Duration = Duration::from_millis(200);

fn start() -> Result<States, String> {
    let named = std::env::var_os(FILE).ok_or_else(|| format!("{FILE} is not set"))?;
    let path = PathBuf::from(named);
    let text = |error: &dyn std::error::Error| format!("{}: {error}", path.display());
    let file = InputFile::open(&path).map_err(|e| text(&e))?;
    let bootable = kernel::bootable(&file).map_err(|e| text(&e))?;
    let image = kernel::open(&file, &OpenOptions::default()).map_err(|e| text(&e))?;
    let places = KernelPlaces::of(&image, 0).ok_or("the kernel has no symbols")?;
    let initrd = initramfs::with_init(WORKLOAD);
    let boot = Boot {
        options: BootOptions {
            image: &bootable.image,
            setup_header: bootable.setup_header.as_deref(),
            initrd: Some(&initrd),
            command_line: COMMAND_LINE,
            relocations: bootable.relocations.as_deref(),
            slide: 0,
            acpi: false,
        },
        memory: MEMORY,
        processor: Processor::default(),
        has_counters: false,
        seed: 0,
        clock: CLOCK,
        console_input: &[],
    };
    let stop = Arc::new(AtomicBool::new(false));
    let subject = KernelSubject {
        image,
        path: path.clone(),
        places,
    };
    let run = ReversibleKernel::start(&boot, subject, stop.clone()).map_err(|e| text(&e))?;
    Ok(States::of_program(run, stop))
}

/// The memory of this process now, MB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

/// Sees a state with all that surrounds it. Returns how long that took.
fn see(states: &mut States, number: u64) -> Result<Duration, String> {
    let mut is_there = Ok(false);
    let time = cpu_time(|| {
        is_there = states.with(number, &mut |at| {
            black_box((&at.threads, at.view.sample));
        });
    });
    match is_there {
        Ok(true) => Ok(time),
        Ok(false) => Err(format!("there is no state {number}")),
        Err(error) => Err(error.to_string()),
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Jumps to states below `end`, and prints how long that took.
fn jump(states: &mut States, end: u64) -> Result<(), String> {
    let mut random = random::Random::new(SEED);
    let mut times = Vec::with_capacity(JUMPS);
    for _ in 0..JUMPS {
        let number = random.below_u64(end);
        times.push((see(states, number)?, number));
    }
    times.sort_unstable();

    let over = times.iter().filter(|(time, _)| *time > GOAL).count();
    let (longest, at) = times[JUMPS - 1];
    println!(
        "{JUMPS} jumps to states below {} million: median {}, 99 % {}, maximum {} (state {at}), {over} over {}; \
         {} MB resident",
        end / 1_000_000,
        milliseconds(times[JUMPS / 2].0),
        milliseconds(times[JUMPS * 99 / 100 - 1].0),
        milliseconds(longest),
        milliseconds(GOAL),
        resident(),
    );
    Ok(())
}

fn run(test: bool) -> Result<(), String> {
    let mut states = start()?;
    if test {
        return see(&mut states, 1).map(|_| ());
    }
    println!("{} MB resident at the start", resident());
    if let Some(most) = std::env::var_os(STATES) {
        let most = most.to_str().and_then(|most| most.parse().ok());
        states.set_limit(most.ok_or_else(|| format!("{STATES} is not a number"))?);
    }

    let (mut all, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut has_more = true;
    while has_more {
        let piece = cpu_time(|| has_more = states.explore(PIECE));
        longest = longest.max(piece);
        all += piece;
    }
    let explored = states.explored();
    println!(
        "explored {explored} states in {:.1} s, {} at most for {PIECE}; {} MB resident",
        all.as_secs_f64(),
        milliseconds(longest),
        resident(),
    );
    for end in [1 << 27, 1 << 31, explored] {
        jump(&mut states, end.min(explored))?;
    }
    Ok(())
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    if let Err(why) = run(test) {
        println!("skipped: {why}");
    }
}
