//! The corpus: one test for each case file and engine. A case is built once.
//!
//! `GROUP/CASE/ptrace` runs on this machine's processor; `GROUP/CASE/emulator` runs in the emulated
//! machine, and compares the result with the processor's. A case whose header says `not-emulated`
//! has the kind `not emulated`, and fails if it can be emulated. Kernels run only in the emulated
//! machine.

#[path = "common/skip.rs"]
mod skip;

use libtest_mimic::{Arguments, Failed, Trial};
use skip::skip;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use unwind_sim_emulator::Processor;
use unwind_sim_judge::case::Machine;
use unwind_sim_judge::cases::{self, Built, CaseFailure, Engine, Recorded, ToolError};
use unwind_sim_judge::confirm::{self, Judgement, Source};
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::spec;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;

/// What the tests of one case share.
struct Shared {
    path: PathBuf,
    built: OnceLock<Result<Built, CaseFailure>>,
    /// The result of the first engine that this machine has.
    first: OnceLock<Result<Recorded, String>>,
}

impl Shared {
    /// `None` if only another assembler makes what the case is about.
    fn built(&self) -> Result<Option<&Built>, Failed> {
        match self.built.get_or_init(|| Built::new(&self.path)) {
            Ok(built) => Ok(Some(built)),
            Err(CaseFailure::Tool(ToolError::Assembler { .. })) => {
                let name = self.path.file_stem().unwrap_or_default();
                skip(&name.to_string_lossy(), "another assembler than the case's");
                Ok(None)
            }
            Err(error) => Err(error.to_string().into()),
        }
    }

    fn first(&self, built: &Built) -> Result<&Recorded, Failed> {
        let check = || built.check(built.engines()[0]).map_err(|e| e.to_string());
        Ok(self.first.get_or_init(check).as_ref()?)
    }

    fn check(&self, engine: Engine) -> Result<(), Failed> {
        let Some(built) = self.built()? else {
            return Ok(());
        };
        let first = self.first(built)?;
        if engine == built.engines()[0] {
            return Ok(());
        }
        let recorded = built.check(engine)?;
        built.check_same(first, &recorded)?;
        check_confirmed(&recorded)
    }

    /// Fails if the case can be emulated, so that the header's key is removed then.
    fn check_not_emulated(&self) -> Result<(), Failed> {
        let built = self.built()?;
        match built.map(|built| built.record(Engine::Emulator)) {
            Some(Ok(_)) => {
                Err("the case can be emulated: remove not-emulated from its header".into())
            }
            Some(Err(_)) | None => Ok(()),
        }
    }
}

/// Continues from each point with the recorded state. Frames confirmed this way must be true, and
/// contradicted frames must not be.
fn check_confirmed(recorded: &Recorded) -> Result<(), Failed> {
    const INSTRUCTIONS_MAX: u64 = 100_000;
    let header = &recorded.case.header;
    // The samples of such cases are changed after they were taken, so execution would not fit them.
    if !header.corruptions.is_empty() || !header.forgotten.is_empty() {
        return Ok(());
    }

    let names: Vec<String> = unwind_sim_judge::unwinders::DEFAULT
        .iter()
        .map(|s| (*s).to_owned())
        .collect();
    let engines = spec::engines(&names).map_err(|e| e.to_string())?;

    let mut source = Source::samples(None);
    let mut faults = Vec::new();
    for index in 0..recorded.points.len() {
        recorded.with_view(index, |view| {
            let core = match source.core_at(view) {
                Ok(core) => core,
                Err(error) => {
                    let key = &recorded.points[index].key;
                    return faults.push(format!("{key}: {error}"));
                }
            };

            // No file of this computer is needed to go on.
            let root = tempfile::tempdir().expect("an empty folder");
            let resumed =
                confirm::resume(core, Processor::default(), INSTRUCTIONS_MAX, root.path());

            let frames = view.sample.truth.frames();

            // A true return address, and the CFA of the frame that returns to it.
            let frames = frames.windows(2).map(|f| (f[1].pc, f[0].cfa));
            let frames: HashSet<(u64, u64)> = frames.collect();

            for engine in &engines {
                let setting = Setting::default();
                let outcome = engine.examine(view, Variant::Hardware, &setting, &mut Cache::new());
                let judged = confirm::judge(&outcome.chain.frames, &resumed);
                // A row that describes a jump's target gives a frame that is not a caller, but to
                // which execution still goes. It is the frame after that row's, and no other.
                let diagnosis = outcome.diagnosis.as_ref();
                let diagnosis = diagnosis.filter(|d| d.code == Code::RowOfTarget);
                let target = diagnosis.map(|d| d.frame + 1 - outcome.from);
                for (i, (frame, judgement)) in outcome.chain.frames.iter().zip(judged).enumerate() {
                    let is_true = frames.contains(&(frame.pc.value(), frame.sp));
                    let right = match judgement {
                        // What execution confirms must be true; what it contradicts must not be.
                        Judgement::Confirmed(_) => is_true || target == Some(i),
                        Judgement::Contradicted(_) => !is_true,
                        Judgement::Unjudged => true,
                    };
                    if !right {
                        let key = &recorded.points[index].key;
                        let name = engine.name();
                        faults.push(format!("{key} {name}: {frame:x?} {judgement:x?}"));
                    }
                }
            }
        });
    }

    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n").into())
    }
}

fn trials(folder: &Path, path: PathBuf) -> Vec<Trial> {
    let name = path.strip_prefix(folder).unwrap_or(&path);
    let name = name.with_extension("").to_string_lossy().into_owned();

    let case = cases::read(&path);
    let header = case.map(|case| case.header);
    let is_kernel = matches!(&header, Ok(header) if header.machine == Machine::Kernel);

    // A case may say why the machine cannot run it; then that is what is checked.
    let not_emulated = header.is_ok_and(|header| header.not_emulated.is_some());

    // Built once for all engines.
    let shared = Arc::new(Shared {
        path,
        built: OnceLock::new(),
        first: OnceLock::new(),
    });

    let trial = |&engine: &Engine| {
        let shared = shared.clone();
        let name = format!("{name}/{}", engine.as_str());
        if engine == Engine::Emulator && not_emulated {
            Trial::test(name, move || shared.check_not_emulated()).with_kind("not emulated")
        } else {
            Trial::test(name, move || shared.check(engine))
        }
    };

    let engines = Engine::HERE.iter();

    // Kernel code runs only in the machine.
    let here = engines.filter(|engine| !is_kernel || **engine == Engine::Emulator);
    here.map(trial).collect()
}

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
    let trials = paths.into_iter().flat_map(|path| trials(&folder, path));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
