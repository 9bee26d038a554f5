//! Measures how many instructions a second this machine's processor executes in each mode,
//! including the transfer of the cases: `cargo run --release -p unwind-sim-emulator-native --example
//! single_rate`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() {
    use std::time::{Duration, Instant};
    use unwind_sim_emulator_native::single::{
        Mode, Native, NativeCase, NativeState, Outcome, WINDOW,
    };

    const BATCH: usize = Native::BATCH;
    const FOR: Duration = Duration::from_millis(400);

    let case = |mode, memory, code: &[u8]| {
        let mut case = NativeCase::new(mode, code);
        case.memory = memory;

        // rsp, so that `push` writes into the window.
        case.state.gpr[4] = WINDOW + 512;
        case
    };

    let mut native = match Native::spawn() {
        Ok(native) => native,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    };

    // One instruction for each kind of state: general registers, the stack, SSE, AVX; and two that
    // fault.
    let add = [0x48, 0x01, 0xd8];
    let push = [0x50];
    let mulpd = [0x66, 0x0f, 0x59, 0xc1];
    let vmulpd = [0xc5, 0xfd, 0x59, 0xc1];

    // A signal costs far more than an instruction, so the two that fault are measured apart.
    let ud2 = [0x0f, 0x0b];
    let null = [0x8b, 0x04, 0x25, 0, 0, 0, 0];

    // Smaller batches show what starting one costs.
    for (name, batch, mut case) in [
        ("plain", BATCH, case(Mode::Plain, false, &add)),
        (
            "plain, 4096 at a time",
            4096,
            case(Mode::Plain, false, &add),
        ),
        ("plain with memory", BATCH, case(Mode::Plain, true, &push)),
        ("fx", BATCH, case(Mode::Fx, false, &mulpd)),
        ("fx with memory", BATCH, case(Mode::Fx, true, &mulpd)),
        ("avx", BATCH, case(Mode::Avx, false, &vmulpd)),
        ("avx with memory", BATCH, case(Mode::Avx, true, &vmulpd)),
        ("step", BATCH, case(Mode::Step, false, &add)),
        ("step with memory", BATCH, case(Mode::Step, true, &push)),
        ("SIGSEGV", BATCH, case(Mode::Plain, false, &null)),
        ("SIGILL", BATCH, case(Mode::Plain, false, &ud2)),
    ] {
        if case.mode == Mode::Avx && !Native::has_avx() {
            println!("{name:22} there is no AVX");
            continue;
        }

        let mut cases = vec![case; batch];
        let mut results = vec![(Outcome::Done, NativeState::default()); batch];
        let (mut number, mut spent, mut best) = (0_u64, Duration::ZERO, Duration::MAX);
        while spent < FOR {
            for place in &mut cases {
                // Every case differs from the one before, as in a real run: equal ones could hide
                // the cost of writing states.
                case.state.gpr[0] = case.state.gpr[0].wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
                place.state.gpr = case.state.gpr;
                place.state.fx.upper[1] = case.state.gpr[0].into();
            }

            // Only the run is timed, not the making of cases.
            let begin = Instant::now();
            if let Err(error) = native.run(&cases, &mut results) {
                eprintln!("{name}: {error}");
                std::process::exit(2);
            }
            let time = begin.elapsed();

            spent += time;

            // The best batch shows the rate without what else this computer does.
            best = best.min(time);
            number += batch as u64;
        }

        let rate = |cases: u64, time: Duration| cases as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{name:22} {:8.3} M cases/s, in the best batch {:8.3} M; {:?}",
            rate(number, spent),
            rate(batch as u64, best),
            results[batch - 1].0
        );
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}
