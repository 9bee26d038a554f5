//! Handlers of samples: eBPF programs as clang compiles them, run with every access checked.
//!
//! [`Object::parse`] reads an object file, [`Handlers::load`] checks its programs and makes its
//! maps, [`Handlers::run`] runs one. What programs ask of the world they get from an [`Env`];
//! [`Attachment`] is the place of a handler in a perf event. The maps stay between runs, and are
//! what is read at the end.
//!
//! ```
//! use unwind_sim_perf_model::bpf::{Context, Handlers, Limits, Object, PerfEventData, PlainEnv};
//! use unwind_sim_perf_data::regs::PERF_REG_X86_IP;
//!
//! let object = Object::parse(include_bytes!("../../corpus/bpf/iprange.bpf.o"))?;
//! let mut handlers = Handlers::load(&object, Limits::default())?;
//! handlers.maps.open_outputs(1);
//! let mut env = PlainEnv::default();
//! let mut data = PerfEventData::new();
//! data.set_reg(PERF_REG_X86_IP, 0xffffffff81214c3c);
//! let outcome = handlers.run(0, &mut env, Context::PerfEvent(&data))?;
//! assert_eq!(outcome.value(), 0);
//! assert_eq!(env.outputs[0].2, 0xffffffff81214c3c_u64.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Not here: compiling, a just-in-time compiler, the kernel's verifier (what it would refuse is a
//! [`Fault`] when it happens), relocations against a kernel's types.

mod attach;
mod check;
mod context;
mod env;
mod errno;
mod error;
mod fault;
mod helpers;
mod insn;
pub mod maps;
mod names;
pub mod object;
mod raw;
pub mod stackmap;
mod vm;

pub use attach::{Attachment, EventTraits, Guard, Verdict};
pub use context::{Context, PerfEventData};
pub use env::{Env, EventValue, MAX_STACK, PlainEnv, SampleChain, Space, Task};
pub use errno::Errno;
pub use error::{LoadError, LoadErrorKind, ObjectError, ObjectErrorKind};
pub use fault::{Fault, FaultKind};
pub use helpers::raw_payload;
pub use insn::{INSN_SIZE, Insn};
pub use maps::{Limits, Map, Maps};
pub use object::{MapDef, Object, ProgramDef};
pub use raw::decode_all;
pub use vm::address::Region;
pub use vm::{Outcome, STACK_SIZE};

/// A program that may run.
pub type Program = ProgramDef;

/// The default budget of a run, instructions; the number that the kernel's verifier examines.
pub const BUDGET: u64 = 1_000_000;

/// The programs of an object, checked, with their maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handlers {
    programs: Vec<Program>,
    /// The maps, which programs share.
    pub maps: Maps,
    /// Instructions that a run may take.
    pub budget: u64,
}

impl Handlers {
    /// Checks the programs of an object and makes its maps.
    ///
    /// # Errors
    /// If a program is malformed or needs something that is not modelled, or a map cannot be
    /// created.
    pub fn load(object: &Object, limits: Limits) -> Result<Self, LoadError> {
        let maps = Maps::new(&object.maps, limits)?;
        let is_gpl = is_gpl_compatible(&object.license);
        for program in &object.programs {
            check::check(program, &maps, is_gpl)?;
        }
        Ok(Self {
            programs: object.programs.clone(),
            maps,
            budget: BUDGET,
        })
    }

    /// The programs, in the order of the object.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// Runs a program.
    ///
    /// # Errors
    /// If it does what the kernel's verifier would have refused, or runs out of its budget.
    ///
    /// # Panics
    /// If there is no such program.
    pub fn run(
        &mut self,
        program: usize,
        env: &mut dyn Env,
        context: Context<'_>,
    ) -> Result<Outcome, Fault> {
        vm::run(
            &self.programs,
            program,
            &helpers::ALL,
            &mut self.maps,
            env,
            context,
            self.budget,
        )
    }
}

/// The licenses that the kernel considers compatible with the GPL (`include/linux/license.h`).
fn is_gpl_compatible(license: &str) -> bool {
    const COMPATIBLE: [&str; 6] = [
        "GPL",
        "GPL v2",
        "GPL and additional rights",
        "Dual BSD/GPL",
        "Dual MIT/GPL",
        "Dual MPL/GPL",
    ];
    COMPATIBLE.contains(&license)
}
