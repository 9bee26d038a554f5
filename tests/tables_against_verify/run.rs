//! Runs a program under `verify`, with the unwinders that read tables as they are.

use std::path::{Path, PathBuf};
use std::time::Duration;
use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_emulator::linux::{Output, ProcessOptions};
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::spec;
use unwind_sim_judge::verify::{self, Request, Run};

/// The most instructions that are followed.
const INSTRUCTIONS_MAX: u64 = if cfg!(debug_assertions) {
    2_000_000
} else {
    100_000_000
};
/// The longest time that a program may take.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The unwinders.
pub(crate) fn engines() -> Vec<Engine> {
    let engine = |name| spec::engine(name).expect("a known unwinder");
    ["dwarf", "sframe"].map(engine).into()
}

/// The program's file, in the folders of the system.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let mut paths = folders.iter().map(|folder| Path::new(folder).join(name));
    let path = paths.find(|path| path.is_file())?;
    path.canonicalize().ok()
}

pub(crate) fn verify(program: &Path, args: &[&str]) -> Run {
    let path = program.as_os_str().as_encoded_bytes().to_vec();
    let args = args.iter().map(|arg| arg.as_bytes().to_vec());
    let running = RunningProgram {
        path: path.clone(),
        options: ProcessOptions {
            args: std::iter::once(path).chain(args).collect(),
            // A fixed environment, so that no run depends on the tester's.
            env: vec![b"LC_ALL=C".to_vec(), b"PATH=/usr/bin:/bin".to_vec()],
            stdout: Output::Capture,
            stderr: Output::Capture,
            ..ProcessOptions::default()
        },
    };

    let engines = engines();
    let request = Request {
        engines: &engines,
        setting: Setting::default(),
        elide: true,
        each: true,
        tables_from: None,
        instructions_max: INSTRUCTIONS_MAX,
        timeout: Some(TIME_MAX),
    };

    verify::run(running, &request, &mut |_| {}).expect("the program can be started")
}
