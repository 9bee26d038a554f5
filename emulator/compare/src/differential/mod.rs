//! Compares the emulated machine with the processor, one instruction at a time.
//!
//! [`Fuzzer`] makes random encodings of every instruction (`encodings`) and random states for them
//! (`generate`, `values`), executes them on both sides, and compares all registers, flags, the x87,
//! SSE and AVX state, memory and the outcome (`compare`). [`unwind_sim_emulator::differences`] lists
//! where processors may differ; `coverage` lists what is not executed, and why. Not here: executing
//! instructions on the processor (`unwind-sim-emulator-native`), and sequences of instructions.

mod areas;
mod bytes;
mod compare;
mod coverage;
mod encodings;
mod file;
mod generate;
mod hold;
mod machine;
mod relate;
mod subject;
mod values;

pub use compare::Verdict;
pub use coverage::{Coverage, TRAITS, excluded};
pub use encodings::Encodings;
pub use file::{CaseFile, CaseFileError};
pub use hold::{CaseResult, Failure, hold};
pub use machine::{CaseEnd, Emulated};
pub use subject::{Access, AddressRegister, TestInstruction, address, mode};
pub use values::Random;

use generate::Pools;
use iced_x86::{Code, EncodingKind, Instruction, InstructionInfoFactory};
use std::collections::HashSet;
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::differences::TABLE;
use unwind_sim_emulator::processor::Feature;
use unwind_sim_emulator_native::single::{
    Mode, Native, NativeCase, NativeError, NativeState, Outcome,
};

/// Number of states tried for each encoding.
const STATES: usize = 8;
/// How many of 256 instructions are random bytes.
const WITH_BYTES: u8 = 24;
/// Number of encodings of a code tried in the machine before it counts as not modelled.
const PROBES: usize = 40;

/// Maximum number of executions of a case until one is not disturbed.
const UNDISTURBED: usize = 4;
/// The interrupt flag of rflags. The kernel sets it for user space, which cannot clear it (Intel
/// SDM volume 1; volume 2, POPF).
const IF: u64 = 1 << 9;

/// Executes random cases in the machine and on the processor.
pub struct Fuzzer {
    native: Native,
    emulated: Emulated,
    encodings: Encodings,
    codes: Vec<(Code, Mode)>,
    /// If random bytes are executed as well: the codes that they may be.
    bytes: Option<HashSet<Code>>,
    next: usize,
    random: Random,
    pools: Pools,
    factory: InstructionInfoFactory,
    cases: Vec<NativeCase>,
    results: Vec<(Outcome, NativeState)>,
    after: (Outcome, NativeState),
    /// Cases that agreed, by code.
    pub coverage: Coverage,
    /// Cases that differed only where an entry of [`TABLE`] allows it, by its index there.
    pub open: [u64; TABLE.len()],
    /// Cases that cannot be compared.
    pub void: u64,
    /// Results that no processor gives: user space without IF. Seen under a hypervisor, about ten
    /// times in 10^9 cases, with the instruction skipped: something else executed it. Such a case
    /// is executed again by a new child, and is void if that does not help.
    pub disturbed: u64,
    /// Cases that the machine does not model.
    pub unsupported: u64,
}

impl Fuzzer {
    /// Fuzzes the `wanted` codes that the machine models, those of AVX only if this computer has it;
    /// if [`Code::INVALID`] is wanted, also random bytes. `processor` is what the machine emulates:
    /// this computer's processor, or the closest one.
    ///
    /// # Errors
    ///
    /// If this machine does not allow native execution.
    pub fn new(
        seed: u64,
        processor: Processor,
        wanted: impl Fn(Code) -> bool,
    ) -> Result<Fuzzer, NativeError> {
        let native = Native::spawn()?;
        let mut random = Random::new(seed);

        let encodings = Encodings::new(processor);
        let mut emulated = Emulated::new(processor);
        let pools = Pools::new(&mut random);

        // What the machine does not model, or this processor lacks, cannot be compared.
        let mut codes: Vec<_> = supported(&encodings, &mut emulated)
            .into_iter()
            .filter(|&(code, supported)| supported && wanted(code))
            .map(|(code, _)| (code, subject::mode(code)))
            .filter(|(_, mode)| *mode != Mode::Avx || Native::has_avx())
            .collect();
        codes.shrink_to_fit();

        // Random bytes are cases of the code INVALID: they are left out when other codes are asked
        // for.
        let bytes = wanted(Code::INVALID).then(|| codes.iter().map(|(code, _)| *code).collect());
        let state = NativeState::default();

        Ok(Fuzzer {
            native,
            emulated,
            encodings,
            codes,
            bytes,
            next: 0,
            random,
            pools,
            factory: InstructionInfoFactory::new(),
            cases: vec![NativeCase::new(Mode::Plain, &[0x90]); Native::BATCH],
            results: vec![(Outcome::Done, state); Native::BATCH],
            after: (Outcome::Done, state),
            coverage: Coverage::new(),
            open: [0; TABLE.len()],
            void: 0,
            disturbed: 0,
            unsupported: 0,
        })
    }

    /// The codes being executed.
    pub fn codes(&self) -> impl Iterator<Item = Code> {
        self.codes.iter().map(|(code, _)| *code)
    }

    /// Executes a batch of [`Native::BATCH`] cases. Returns those that differ, each confirmed by a
    /// second execution.
    ///
    /// # Errors
    ///
    /// If the child that executes instructions cannot be started again.
    pub fn batch(&mut self) -> Result<Vec<Failure>, NativeError> {
        if self.codes.is_empty() {
            return Ok(Vec::new());
        }

        // Values are drawn from pools, which are made anew for each batch.
        self.pools.renew(&mut self.random);
        let mut subjects = Vec::with_capacity(Native::BATCH / STATES);

        while subjects.len() < Native::BATCH / STATES {
            let first = subjects.len() * STATES;

            // Each code in turn, so that none is rare.
            let (code, mode) = self.codes[self.next];
            self.next = (self.next + 1) % self.codes.len();

            let mut bytes = [0; 15];
            let place = Native::place(first);
            let processor = self.emulated.processor();
            let insn = if self.bytes.is_some() && self.random.chance(WITH_BYTES) {
                self.any(place, &mut bytes)
            } else {
                self.encodings
                    .random(code, place, &mut self.random, &mut bytes)
            };
            let Some(insn) = insn else {
                continue;
            };

            // Random bytes may be another instruction than the one whose turn it is.
            let mode = if insn.code() == code {
                mode
            } else {
                subject::mode(insn.code())
            };

            let subject = TestInstruction::new(&processor, insn, bytes, mode, &mut self.factory);
            for index in first..first + STATES {
                let case = &mut self.cases[index];
                generate::case(&subject, index, &self.pools, &mut self.random, case);
            }
            subjects.push(subject);
        }

        // The processor executes the whole batch in one run of the child.
        self.native.run(&self.cases, &mut self.results)?;
        self.emulated.clean();

        let mut failures = Vec::new();
        for index in 0..Native::BATCH {
            let subject = &subjects[index / STATES];
            match self.judge(subject, index) {
                Verdict::Same => {}
                Verdict::Open(used) => used.numbers().for_each(|number| self.open[number] += 1),
                // It says nothing, so it does not count as covered either.
                Verdict::Void => {
                    self.void += 1;
                    continue;
                }
                Verdict::Different => {
                    failures.extend(self.confirm(index)?);
                    continue;
                }
            }

            let traits = coverage::traits(subject, &self.cases[index], &self.results[index]);
            self.coverage.add(subject.insn.code(), traits);
        }

        Ok(failures)
    }

    /// Bytes that are not an instruction, or are one of the codes.
    fn any(&mut self, place: u64, bytes: &mut [u8; 15]) -> Option<Instruction> {
        let processor = self.emulated.processor();
        let wanted = self.bytes.as_ref()?;
        bytes::random(&processor, wanted, place, &mut self.random, bytes)
    }

    fn judge(&mut self, subject: &TestInstruction, index: usize) -> Verdict {
        let case = &self.cases[index];
        match self.emulated.run(case, &mut self.after.1) {
            CaseEnd::As(outcome) => self.after.0 = outcome,
            CaseEnd::Unsupported => {
                self.unsupported += 1;
                return Verdict::Void;
            }
        }
        let cpu = self.emulated.processor();
        compare::compare(subject, case, cpu, &mut self.results[index], &self.after)
    }

    /// Executes the case at `index` again, by itself, and simplifies it while it still fails.
    fn confirm(&mut self, index: usize) -> Result<Option<Failure>, NativeError> {
        // The case may have damaged the old child.
        self.native = Native::spawn()?;
        let Some(mut failure) = self.fails(&self.cases[index].clone(), index)? else {
            self.void += 1;
            return Ok(None);
        };
        for step in 0..hold::SIMPLER {
            let mut case = failure.case;
            if hold::simplify(&mut case, step)
                && let Some(simpler) = self.fails(&case, index)?
            {
                failure = simpler;
            }
        }
        Ok(Some(failure))
    }

    fn fails(&mut self, case: &NativeCase, index: usize) -> Result<Option<Failure>, NativeError> {
        // In the same slot as in the batch, because the address is part of the case.
        let mut cases = vec![NativeCase::new(Mode::Fx, &[0x90]); index];
        cases.push(*case);
        let mut results = vec![(Outcome::Hung, NativeState::default()); cases.len()];

        let mut tries = 0..UNDISTURBED;
        loop {
            self.native.run(&cases, &mut results)?;

            // Only a disturbed case loses IF, which the kernel sets for user space.
            if results[index].1.rflags & IF != 0 {
                break;
            }
            self.disturbed += 1;

            // What disturbed the child may stay in it, so a new one takes over.
            self.native = Native::spawn()?;
            if tries.next().is_none() {
                return Ok(None);
            }
        }

        self.emulated.clean();
        Ok(
            match hold(&mut self.emulated, case, index, results[index]) {
                CaseResult::Different(failure) => Some(*failure),
                CaseResult::Same
                | CaseResult::Open(_)
                | CaseResult::Void
                | CaseResult::Unsupported => None,
            },
        )
    }
}

/// All codes that are not excluded, and whether the machine models them. Those with a VEX prefix that
/// raise #UD whatever features the machine has, such as those of AVX-512, count as not modelled.
pub fn supported(encodings: &Encodings, emulated: &mut Emulated) -> Vec<(Code, bool)> {
    // Always the same cases, and so the same answer.
    let mut random = Random::new(1);
    let pools = Pools::new(&mut random);
    let mut factory = InstructionInfoFactory::new();
    let mut case = NativeCase::new(Mode::Plain, &[0x90]);
    let mut after = case.state;

    // A VEX instruction without its feature is #UD, so a machine with all features tells whether it
    // is known.
    let mut processor = emulated.processor();
    Feature::all().for_each(|feature| processor.set(feature, true));
    let mut full = Emulated::new(processor);

    let mut has = |code: Code| {
        let is_vex = code.encoding() == EncodingKind::VEX;
        (0..PROBES).any(|_| {
            let mut bytes = [0; 15];
            let place = Native::place(0);
            let Some(insn) = encodings.random(code, place, &mut random, &mut bytes) else {
                return false;
            };

            let mode = subject::mode(code);
            let mode = if mode == Mode::Avx { mode } else { Mode::Fx };
            let subject =
                TestInstruction::new(&emulated.processor(), insn, bytes, mode, &mut factory);
            generate::case(&subject, 0, &pools, &mut random, &mut case);

            if is_vex {
                match full.run(&case, &mut after) {
                    CaseEnd::As(Outcome::Signal { signal, .. }) => signal != machine::SIGILL,
                    ended => ended != CaseEnd::Unsupported,
                }
            } else {
                emulated.run(&case, &mut after) != CaseEnd::Unsupported
            }
        })
    };

    let codes = coverage::included(encodings).into_iter();
    codes.map(|code| (code, has(code))).collect()
}
