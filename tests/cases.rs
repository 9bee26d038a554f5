//! The corpus: one named test for each case file.

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::ExitCode;
use unwind_sim::cases;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/cases");
    let paths = match cases::find(&folder) {
        Ok(paths) => paths,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let trial = |path: std::path::PathBuf| {
        let name = path
            .strip_prefix(&folder)
            .unwrap_or(&path)
            .with_extension("");
        Trial::test(name.to_string_lossy(), move || {
            cases::check(&path).map_err(|error| Failed::from(error.to_string()))
        })
    };
    libtest_mimic::run(&arguments, paths.into_iter().map(trial).collect()).exit_code()
}
