//! Tests the abstract semantics, on which `tables check` rests, against the machine and the
//! processor.
//!
//! A case is an instruction and what is known before it (`draw`): each register and some words of the
//! stack hold something (`meaning`), of which more or less is known. The instruction is interpreted by
//! [`unwind_sim_tables::proof`], and executed in several concrete states that fit what is known. What
//! is known afterwards must be so in all of them (`judge`), in the emulated machine and, where there
//! is one, on the processor. An interpreter that knows nothing passes that, so `precision` counts how
//! much is known. `declared` is about instructions that the machine does not execute: what the decoder
//! says that they write must be forgotten.

mod declared;
mod draw;
mod file;
mod judge;
mod meaning;
mod precision;
mod run;

pub use declared::declared;
pub use judge::Violation;
pub use precision::Precision;

use draw::Case;
use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic};
use run::ConcreteRun;
use std::fmt;
use unwind_sim_emulator::processor::Feature;
use unwind_sim_emulator::{Processor, Vendor};
use unwind_sim_emulator_compare::differential::{
    CaseEnd, Emulated, Encodings, Random, TestInstruction, supported,
};
use unwind_sim_emulator_native::single::{
    Mode, Native, NativeCase, NativeError, NativeState, Outcome,
};
use unwind_sim_tables::file::File;

/// Number of concrete states of each case.
const WORLDS: usize = 4;
/// Number of concrete states in which what looks wrong is tried again.
const CONFIRMING: usize = 24;
/// Number of cases executed together.
const BATCH: usize = Native::BATCH / WORLDS;

/// Interprets random instructions, and executes them.
pub struct Fuzzer {
    file: File,
    native: Option<Native>,
    emulated: Emulated,
    encodings: Encodings,
    codes: Vec<Code>,
    next: usize,
    random: Random,
    factory: InstructionInfoFactory,
    /// What was known after instructions, by code.
    pub precision: Precision,
    /// The number of concrete states executed on the processor, and in the machine.
    pub executed: [u64; 2],
}

/// A case that went wrong.
#[derive(Debug)]
pub struct Failure {
    /// The instruction.
    pub insn: Instruction,
    /// What is wrong.
    pub wrong: Violation,
    /// Who executed it.
    pub by: &'static str,
    /// What was known before, and what is known after it.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            insn,
            wrong,
            by,
            text,
        } = self;
        write!(f, "{:?}: {insn}: {by}: {wrong}\n{text}", insn.code())
    }
}

/// What a machine with the instructions of all its extensions is.
fn everything() -> Processor {
    let mut processor = Processor::new(Vendor::Intel);
    Feature::all().for_each(|feature| processor.set(feature, true));
    processor
}

impl Fuzzer {
    /// Tests the `wanted` codes that the machine executes; `native` also executes them on this
    /// processor.
    ///
    /// # Errors
    ///
    /// If this machine does not allow native execution.
    pub fn new(
        seed: u64,
        native: bool,
        wanted: impl Fn(Code) -> bool,
    ) -> Result<Fuzzer, NativeError> {
        let native = native.then(Native::spawn).transpose()?;

        // With every feature, whatever this processor has.
        let encodings = Encodings::new(everything());
        let mut emulated = Emulated::new(everything());

        // Only what the machine executes can be compared with the interpreter.
        let codes = supported(&encodings, &mut emulated)
            .into_iter()
            .filter(|&(code, supported)| supported && is_interpreted(code) && wanted(code))
            .map(|(code, _)| code);

        Ok(Fuzzer {
            file: file::empty(),
            native,
            codes: codes.collect(),
            emulated,
            encodings,
            next: 0,
            random: Random::new(seed),
            factory: InstructionInfoFactory::new(),
            precision: Precision::new(),
            executed: [0; 2],
        })
    }

    /// The codes being tested.
    pub fn codes(&self) -> &[Code] {
        &self.codes
    }

    /// Executes a batch of cases in several states each. Returns what went wrong.
    ///
    /// # Errors
    ///
    /// If the child that executes instructions cannot be started again.
    pub fn batch(&mut self) -> Result<Vec<Failure>, NativeError> {
        let mut cases = Vec::with_capacity(BATCH);
        while cases.len() < BATCH && !self.codes.is_empty() {
            // The codes take turns, so that none is left out by chance.
            let code = self.codes[self.next];
            self.next = (self.next + 1) % self.codes.len();
            let place = Native::place(cases.len() * WORLDS);
            // No instruction is longer.
            let mut bytes = [0; 15];
            let random = &mut self.random;
            if let Some(insn) = self.encodings.random(code, place, random, &mut bytes) {
                let subject = subject(insn, bytes, &mut self.factory);
                cases.extend(Case::draw(subject, &mut self.factory, random));
            }
        }

        // Each state has a place of its own, as on the processor they are executed together.
        let mut runs: Vec<ConcreteRun> = Vec::with_capacity(cases.len() * WORLDS);
        for (index, case) in cases.iter().enumerate() {
            for number in 0..WORLDS {
                let place = Native::place(index * WORLDS + number);
                runs.push(ConcreteRun::new(case, place, &mut self.random));
            }
        }

        let by_processor = self.execute_natively(&runs)?;
        let mut failures = Vec::new();
        for (index, case) in cases.iter().enumerate() {
            let range = index * WORLDS..(index + 1) * WORLDS;
            let runs = &mut runs[range.clone()];
            self.emulate(runs);
            failures.extend(self.judge(case, runs, "machine"));
            if let Some(results) = &by_processor {
                take(runs, &results[range.clone()]);
                if self.judge(case, runs, "processor").is_some() {
                    // Something else may have executed it, as under a hypervisor.
                    let again = self.execute_again(runs, range.start)?;
                    take(runs, &again);
                    failures.extend(self.judge(case, runs, "processor"));
                }
            }
        }

        Ok(failures)
    }

    fn emulate(&mut self, runs: &mut [ConcreteRun]) {
        for run in runs {
            self.emulated.clean();
            let ended = self.emulated.run(&run.before, &mut run.after);
            run.is_done = ended == CaseEnd::As(Outcome::Done);
            self.executed[1] += u64::from(run.is_done);
        }
    }

    fn execute_natively(
        &mut self,
        runs: &[ConcreteRun],
    ) -> Result<Option<Vec<(Outcome, NativeState)>>, NativeError> {
        let Some(native) = &mut self.native else {
            return Ok(None);
        };
        let mut cases: Vec<NativeCase> = runs.iter().map(|run| run.before).collect();
        let is_out = |case: &NativeCase| case.mode == Mode::Avx && !Native::has_avx();
        let out: Vec<bool> = cases.iter().map(is_out).collect();
        for (case, _) in cases.iter_mut().zip(&out).filter(|(_, out)| **out) {
            *case = NativeCase::new(Mode::Plain, &[0x90]);
        }
        let mut results = vec![(Outcome::Hung, NativeState::default()); cases.len()];
        native.run(&cases, &mut results)?;
        for (result, _) in results.iter_mut().zip(&out).filter(|(_, out)| **out) {
            result.0 = Outcome::Hung;
        }
        let done = results.iter().filter(|r| r.0 == Outcome::Done).count();
        self.executed[0] += done as u64;
        Ok(Some(results))
    }

    /// Executes some states again, by a new child, at the places that they have in a batch.
    fn execute_again(
        &mut self,
        runs: &[ConcreteRun],
        first: usize,
    ) -> Result<Vec<(Outcome, NativeState)>, NativeError> {
        let mut native = Native::spawn()?;
        let mut cases = vec![NativeCase::new(Mode::Plain, &[0x90]); first];
        cases.extend(runs.iter().map(|run| run.before));
        let mut results = vec![(Outcome::Hung, NativeState::default()); cases.len()];
        native.run(&cases, &mut results)?;
        self.native = Some(native);
        Ok(results.split_off(first))
    }

    fn judge(&mut self, case: &Case, runs: &[ConcreteRun], by: &'static str) -> Option<Failure> {
        let interpreted = case.interpret(&self.file);
        let precision = (by == "machine").then_some(&mut self.precision);
        let wrong = interpreted.judge(case, runs, precision)?;
        // What is only so in a few states may be chance: a conditional move that is never made.
        if wrong.may_be_chance() {
            let place = case.subject.insn.ip();
            let mut random = Random::new(place);
            let mut more: Vec<ConcreteRun> = (0..CONFIRMING)
                .map(|_| ConcreteRun::confirming(case, place, &mut random))
                .collect();
            self.emulate(&mut more);
            interpreted.judge(case, &more, None)?;
        }
        Some(Failure {
            insn: case.subject.insn,
            wrong,
            by,
            text: format!("before: {}\nafter:  {}", case.text(), interpreted.text()),
        })
    }
}

/// Takes over what the processor made of some states that the machine has executed. Where it went another
/// way than the machine is up to the comparison of both.
fn take(runs: &mut [ConcreteRun], results: &[(Outcome, NativeState)]) {
    for (run, (outcome, after)) in runs.iter_mut().zip(results) {
        let is_same_way = run.after.rip == after.rip;
        (run.is_done, run.after) = (*outcome == Outcome::Done && is_same_way, *after);
    }
}

fn subject(
    insn: Instruction,
    bytes: [u8; 15],
    factory: &mut InstructionInfoFactory,
) -> TestInstruction {
    let mode = unwind_sim_emulator_compare::differential::mode(insn.code());
    TestInstruction::new(&everything(), insn, bytes, mode, factory)
}

/// Whether an instruction changes what is known by rules of its own: calls, returns and system calls
/// are up to what follows a function's ways.
fn is_interpreted(code: Code) -> bool {
    let mut insn = Instruction::default();
    insn.set_code(code);
    match insn.flow_control() {
        // With REX.B, AMD's processors take a `pause` for an `xchg`, and Intel's do not.
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::IndirectBranch => {
            !matches!(insn.mnemonic(), Mnemonic::Hlt | Mnemonic::Pause)
        }
        _ => false,
    }
}
