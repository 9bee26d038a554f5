//! Measures how fast a program is single-stepped with a shadow stack, and prints what the shadow
//! stack saw: `cargo run --release -p unwind-sim-host --example rate -- PROG [ARGS]`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() {
    use unwind_sim_host::{
        At, Event, Launch, Mapping, Next, Recorder, RecorderError, RecorderOptions, Sample, Target,
    };

    #[derive(Default)]
    struct Count {
        samples: u64,
        bytes: u64,
        frames: u64,
        complete: u64,
    }

    impl Recorder for Count {
        fn event(&mut self, _: &Event<'_>) -> Result<(), RecorderError> {
            Ok(())
        }
        fn sample(&mut self, sample: Sample) -> Result<Next, RecorderError> {
            // Counted and not kept: a million steps may have more stacks than memory has room for.
            self.samples += 1;
            self.bytes += sample
                .stacks
                .iter()
                .map(|s| s.bytes.len() as u64)
                .sum::<u64>();
            self.frames += sample.truth.frames().len() as u64;
            self.complete += u64::from(sample.truth.is_complete());
            Ok(Next::Go)
        }
        fn locate(&mut self, _: &Mapping, _: &str) -> Vec<u64> {
            Vec::new()
        }
    }

    let mut args = std::env::args_os().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: rate PROG [ARGS]");
        std::process::exit(2);
    };
    let program = Launch {
        path,
        args: args.collect(),
        quiet: true,
        ..Launch::default()
    };

    // Few samples, so that the time is that of the steps, not of copying stacks.
    let mut options = RecorderOptions::new(Target::Run(program), At::Every(1000));
    options.plan.truth = true;
    // A program may run for hours when it is stepped. This ends after seconds.
    options.plan.max_instructions = Some(1_000_000);

    let mut count = Count::default();
    let begin = std::time::Instant::now();

    match unwind_sim_host::record(&options, &mut count) {
        Ok(summary) => {
            let seconds = begin.elapsed().as_secs_f64();
            let rate = summary.instructions as f64 / seconds;
            println!("{summary:#?}");
            println!("{rate:.0} steps/s with truth");
            println!(
                "{} samples, {} complete, {} frames, {} bytes of stack",
                count.samples, count.complete, count.frames, count.bytes
            );
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}
