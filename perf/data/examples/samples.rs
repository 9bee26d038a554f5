//! Prints the samples of a perf.data file with their callchains: `cargo run --example samples
//! perf.data`.

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;
use unwind_sim_perf_data::callchain::Context;
use unwind_sim_perf_data::{PerfFile, Record, Stop};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1);
    let path = path.ok_or("usage: samples FILE")?;
    let bytes = std::fs::read(path)?;
    let file = PerfFile::parse(&bytes)?;
    let mut out = std::io::stdout().lock();

    let summary = file.for_each_ordered(|event| {
        let Record::Sample(sample) = event.record else {
            return ControlFlow::Continue(());
        };
        let (tid, time) = (sample.tid().unwrap_or(-1), sample.time().unwrap_or(0));
        let ip = sample.ip().unwrap_or(0);

        let chain = sample.callchain().ok().flatten();
        let frames = |context| chain.iter().flat_map(move |chain| chain.frames_of(context));
        let kernel = frames(Context::Kernel).count();
        let user = frames(Context::User).count();

        let line = writeln!(
            out,
            "thread {tid} at {time} ns: {ip:#x}, {kernel} kernel frames, {user} user frames"
        );
        // Stop when the pipe is closed.
        match line {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });

    // What could be read has been printed: a damaged end is no reason to lose the rest.
    if let Stop::Error(error) = summary.stop {
        eprintln!("the rest cannot be read: {error}");
    }
    Ok(())
}
