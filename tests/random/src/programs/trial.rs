//! Runs a program with the right table, and with a wrong one, and compares the findings of `verify`
//! with what the generator knows.

use super::build::BuiltProgram;
use super::case::InjectedDefect;
use super::defect::DefectKind;
use super::numbers::numbers;
use super::program::RandomProgram;
use super::row::Table;
use super::watch::TableObserver;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tempfile::TempDir;
use unwind_sim_emulator::linux::End;
use unwind_sim_emulator::linux::{Kernel, Outcome, ProcessOptions};
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::spec;
use unwind_sim_judge::unwinders;
use unwind_sim_judge::verify::{self, Check, Finding, Request, Run};
use unwind_sim_unwind::address::Lookup;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Reg;

/// Maximum number of instructions of a program.
const INSTRUCTIONS_MAX: u64 = 2_000_000;
/// The program's file name in the directory.
const NAME: &str = "program";

/// Runs programs and verifies their tables.
pub struct Verifier {
    directory: TempDir,
    engines: Vec<Engine>,
}

/// Why a program could not be tried, or what went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// It could not be generated, written or started.
    #[error("{0}")]
    Setup(String),
    /// The program did not end as it must.
    #[error("the program {0}")]
    Ended(String),
    /// The shadow stack failed, or did not know the truth.
    #[error("the shadow stack: {0}")]
    Truth(String),
    /// A right table was found to be wrong.
    #[error("{0}")]
    Contradiction(String),
    /// Two of our checks disagree.
    #[error("disagreement: {0}")]
    Disagreement(String),
    /// The findings do not match the defect.
    #[error("defect {}: {what}", kind.as_str())]
    Defect {
        /// The defect.
        kind: DefectKind,
        /// The mismatch.
        what: String,
    },
}

/// The outcome of trying a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrialCounts {
    /// Instructions executed.
    pub instructions: u64,
    /// Calls made.
    pub calls: u64,
    /// Signals delivered.
    pub signals: u64,
    /// Rows that were needed and that SFrame or ORC cannot represent.
    pub lost: u64,
    /// The defect, if one was injected.
    pub defect: Option<(DefectKind, DefectOutcome)>,
}

/// What happened to a defect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DefectOutcome {
    /// No executed instruction uses it.
    NotExecuted,
    /// It gives the same values at all executed instructions.
    Equivalent,
    /// It was found exactly where it is wrong.
    Found,
}

fn setup(error: impl std::fmt::Display) -> TrialError {
    TrialError::Setup(error.to_string())
}

impl Verifier {
    /// Creates a bench with a temporary directory.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new() -> Result<Verifier, TrialError> {
        let names = unwinders::TABLES.map(str::to_owned);
        Ok(Verifier {
            directory: TempDir::new().map_err(setup)?,
            engines: spec::engines(&names).map_err(setup)?,
        })
    }

    /// Tries a program with its right table, and then with one defect.
    ///
    /// # Errors
    /// If something went wrong.
    pub fn try_program(&self, program: &RandomProgram) -> Result<TrialCounts, TrialError> {
        let built = BuiltProgram::new(program).map_err(setup)?;
        let mut tried = self.right(program, &built)?;
        let executed = self.watch(&built, &built.table)?.executed;
        let mut rng = numbers(program.seed, 3);
        let injected = super::defect::inject(&built.table, &built.boundaries, &executed, &mut rng);
        if let Some((kind, table)) = injected {
            tried.defect = Some((kind, self.wrong(&built, kind, &table)?));
        }
        Ok(tried)
    }

    /// Writes the program as an ELF executable to the directory and returns its path.
    ///
    /// # Errors
    /// If it cannot be generated or written.
    pub fn executable(&self, program: &RandomProgram) -> Result<PathBuf, TrialError> {
        let built = BuiltProgram::new(program).map_err(setup)?;
        self.write(&built, &built.table)
    }

    /// The program as a case, with a defect if `with_defect`.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn case(
        &self,
        program: &RandomProgram,
        with_defect: bool,
        group_and_claim: (&str, &str),
    ) -> Result<String, TrialError> {
        let built = BuiltProgram::new(program).map_err(setup)?;

        // Only at executed addresses can a defect be seen.
        let executed = self.watch(&built, &built.table)?.executed;

        let mut rng = numbers(program.seed, 3);
        let injected = super::defect::inject(&built.table, &built.boundaries, &executed, &mut rng);

        let injected = injected.filter(|_| with_defect);
        let injected = match &injected {
            Some((kind, table)) => Some(InjectedDefect {
                kind: *kind,
                at: self.watch(&built, table)?.wrong.first().map(|(at, _)| *at),
                table,
            }),
            None => None,
        };

        Ok(super::case::write(
            program,
            &built,
            injected.as_ref(),
            group_and_claim,
        ))
    }

    /// Writes a program with the given table.
    fn write(&self, built: &BuiltProgram, table: &Table) -> Result<PathBuf, TrialError> {
        let path = self.directory.path().join(NAME);
        std::fs::write(&path, built.file(table).map_err(setup)?).map_err(setup)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, mode).map_err(setup)?;
        }
        Ok(path)
    }

    fn options(&self) -> ProcessOptions {
        ProcessOptions {
            args: vec![NAME.into()],
            root: self.directory.path().to_owned(),
            ..ProcessOptions::default()
        }
    }

    fn verify(
        &self,
        built: &BuiltProgram,
        table: &Table,
        engines: &[Engine],
    ) -> Result<Run, TrialError> {
        self.write(built, table)?;

        let request = Request {
            engines,
            setting: Setting::default(),
            elide: true,
            each: true,
            tables_from: None,
            instructions_max: INSTRUCTIONS_MAX,
            timeout: None,
        };
        let program = unwind_sim_emulator::linux::RunningProgram {
            path: format!("/{NAME}").into_bytes(),
            options: self.options(),
        };
        let run = verify::run(program, &request, &mut |_| {}).map_err(setup)?;

        // A program ends with 0 if all registers were restored everywhere.
        if run.end != End::Outcome(Outcome::Exited(0)) {
            return Err(TrialError::Ended(run.end.to_string()));
        }

        let truth = &run.results.truth;

        // The truth is tested, too: it has to know every frame, except where the program is
        // doubtful.
        if truth.failures() != 0 || truth.unknown != 0 && !built.is_doubtful {
            return Err(TrialError::Truth(format!("{truth:?}")));
        }

        // The quick check and the whole walk must find the same.
        if let Some(first) = run.results.disagreements.first() {
            let name = engines[first.unwinder].name();
            return Err(TrialError::Disagreement(format!("{name}: {first:x?}")));
        }

        Ok(run)
    }

    fn watch<'a>(
        &self,
        built: &'a BuiltProgram,
        table: &'a Table,
    ) -> Result<TableObserver<'a>, TrialError> {
        self.write(built, &built.table)?;
        let path = format!("/{NAME}");
        let mut process = Kernel::start(path.as_bytes(), self.options()).map_err(setup)?;
        let mut watch = TableObserver::new(&built.table, table);
        match process.run(INSTRUCTIONS_MAX, &mut watch) {
            Outcome::Exited(0) => Ok(watch),
            outcome => Err(TrialError::Ended(outcome.to_string())),
        }
    }

    /// Checks the right table: the only findings allowed are what a format cannot represent.
    fn right(
        &self,
        program: &RandomProgram,
        built: &BuiltProgram,
    ) -> Result<TrialCounts, TrialError> {
        // Every unwinder reads the same correct table, or one that is derived from it.
        let run = self.verify(built, &built.table, &self.engines)?;
        let results = &run.results;

        let mut lost = 0;
        for finding in results.findings.iter().filter(|f| self.is_its_own(f)) {
            // The first engine reads the table itself, so nothing may be lost there.
            let is_loss = finding.unwinder != 0
                && !program.plain
                && finding.contradiction.given.is_none()
                && matches!(
                    finding.code,
                    Code::NoRow | Code::NoRowForExecuted | Code::RegisterNotCarried
                );
            if !is_loss {
                let name = self.engines[finding.unwinder].name();
                let what = shown(finding, built);
                return Err(TrialError::Contradiction(format!("{name}: {what}")));
            }
            lost += 1;
        }

        // Whole walks, not only single rows.
        let walks = results.tallies[0].walks_wrong;
        if walks != 0 {
            return Err(TrialError::Contradiction(format!("{walks} walks of dwarf")));
        }

        Ok(TrialCounts {
            instructions: results.truth.instructions,
            calls: results.truth.calls,
            signals: results.truth.signals,
            lost,
            defect: None,
        })
    }

    /// Whether a finding counts against the unwinder's table. Looking up a return address as it is
    /// finds the row after the call, which may be another one: that is not the table's fault.
    fn is_its_own(&self, finding: &Finding) -> bool {
        let finder = self.engines[finding.unwinder].finder();
        let inside_call = finder.is_some_and(|finder| finder.lookup() == Lookup::InsideCall);
        match finding.check {
            Check::Instruction | Check::InsideCall => true,
            Check::Walk => inside_call,
            Check::AtReturn => false,
        }
    }

    /// Checks a wrong table: it must be found wrong exactly where it is.
    fn wrong(
        &self,
        built: &BuiltProgram,
        kind: DefectKind,
        table: &Table,
    ) -> Result<DefectOutcome, TrialError> {
        // What is wrong where is computed from both tables, without any unwinder.
        let watch = self.watch(built, table)?;

        // One unwinder will do: all read this table, or one that is derived from it.
        let run = self.verify(built, table, &self.engines[..1]);
        let run = run.map_err(|problem| TrialError::Defect {
            kind,
            what: problem.to_string(),
        })?;

        let instructions = run.results.findings.iter();
        let instructions = instructions.filter(|f| f.check == Check::Instruction);
        let found: BTreeSet<(u64, Reg)> = instructions.map(|f| (f.address, f.reg)).collect();

        // What is wrong only where the truth is unknown is not found.
        let is_right = match run.results.truth.unknown {
            0 => found == watch.wrong,
            _ => found.is_subset(&watch.wrong),
        };

        if !is_right {
            // The lowest address is enough for the message: the sets are ordered.
            let first = found.symmetric_difference(&watch.wrong).next();

            // Found where nothing is wrong, or missed where something is.
            let by = if first.is_some_and(|one| found.contains(one)) {
                "found"
            } else {
                "missed"
            };
            let what = first.map_or(String::new(), |(address, reg)| {
                format!("{by} {} of {}", reg.as_str(), built.place(*address))
            });
            let what = format!("{what}; {} of {}", found.len(), watch.wrong.len());
            return Err(TrialError::Defect { kind, what });
        }

        Ok(match (watch.met.is_empty(), found.is_empty()) {
            (true, _) => DefectOutcome::NotExecuted,
            (false, true) => DefectOutcome::Equivalent,
            (false, false) => DefectOutcome::Found,
        })
    }
}

fn shown(finding: &Finding, built: &BuiltProgram) -> String {
    let Finding {
        check,
        address,
        code,
        contradiction,
        ..
    } = finding;
    let place = built.place(*address);
    format!("{code} {place} ({}): {contradiction}", check.as_str())
}
