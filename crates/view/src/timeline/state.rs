//! One state: registers, instruction, true chain, stack and walks.

use super::code::{self, Code, CodeLine, instruction_at};
use super::stack::Stack;
use super::steps::Walk;
use super::threads::Thread;
use super::{Hex, Walker};
use crate::json::{PlaceLine, place};
use crate::listing::true_place;
use crate::source_lines::{SourceLines, SourceTexts};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use unwind_sim_judge::check::Subject;
use unwind_sim_judge::diagnose::frame_pointer_cause;
use unwind_sim_judge::engine::Engine;
use unwind_sim_judge::kernel::RECORDED;
use unwind_sim_judge::run::{Run, kernel_part, user_part};
use unwind_sim_judge::states::{Before, StateView};
use unwind_sim_recordings::model::RecordedChain;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Contents, ImageId};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::truth::{TrueKind, Truth};

/// A state of a stack: before an instruction of a program, or a sample of a recording.
#[derive(Clone, Default, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct State {
    /// Its number: of instructions executed before it, or of the sample.
    pub number: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// The thread's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time of the sample: nanoseconds, or instructions executed.
    pub time: u64,
    /// Where the next instruction is.
    pub place: PlaceLine,
    /// The next instruction, if its bytes are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instruction: Option<CodeLine>,
    /// The address of the first instruction of the [`Code`] around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Hex>,
    /// The known registers, in the order of the psABI.
    pub registers: Vec<Register>,
    /// The names of those that differ from the state before, if that is of the same thread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<&'static str>,
    /// How much of the true chain is known: `complete`, `to a depth` or `unknown`.
    pub truth: &'static str,
    /// The true frames, innermost first.
    pub frames: Vec<TrueFrame>,
    /// The words of the stack.
    pub stack: Stack,
    /// The rows that are wrong here, whether or not that makes the chain wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<RowFault>,
    /// What each walker makes of it, in the order of the timeline's walkers.
    pub walks: Vec<Walk>,
    /// The chains that another tool recorded with the sample. They are not judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<Recorded>,
    /// All threads of a program, by number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Thread>,
}

/// A chain that another tool recorded.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Recorded {
    /// The tool.
    pub source: String,
    /// The addresses of the kernel's part, innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<Hex>,
    /// The other frames, innermost first.
    pub frames: Vec<PlaceLine>,
}

impl Recorded {
    fn of(view: &View<'_>, chain: &RecordedChain) -> Recorded {
        let (kernel, frames) = match chain.source.as_str() {
            RECORDED => (Vec::new(), chain.ips.clone()),
            _ => (kernel_part(&chain.ips), user_part(&chain.ips)),
        };
        let frame = |(at, &pc): (usize, &u64)| {
            let address = match at {
                0 => CodeAddress::Instruction(pc),
                _ => CodeAddress::Return(pc),
            };
            place(view.space, address)
        };
        Recorded {
            source: chain.source.clone(),
            kernel: kernel.into_iter().map(Hex).collect(),
            frames: frames.iter().enumerate().map(frame).collect(),
        }
    }
}

impl State {
    /// Whether the stack pointer is known.
    pub fn knows_rsp(&self) -> bool {
        self.registers.iter().any(|register| register.name == "rsp")
    }
}

/// A register.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Register {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: Hex,
}

impl Register {
    pub(super) fn new(reg: Reg, value: u64) -> Register {
        Register {
            name: reg.as_str(),
            value: Hex(value),
        }
    }
}

/// A frame of the true chain.
#[derive(Clone, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct TrueFrame {
    /// Where it continues.
    pub place: PlaceLine,
    /// What its address is: `top`, `call`, `interrupted` or `trapped`.
    pub kind: &'static str,
    /// The canonical frame address; meaningless in the outermost frame.
    pub cfa: Hex,
    /// The address of the word that its pc is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<Hex>,
    /// Its callee-saved registers; empty if they were not observed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub saved: Vec<Register>,
}

/// The row of an unwinder is wrong at the instruction of a state.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RowFault {
    /// The unwinder.
    pub unwinder: String,
    /// The reason code.
    pub code: &'static str,
    /// The register concerned: `rsp` for the CFA, `rip` for the return address.
    pub register: &'static str,
    /// The value that the row gives, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given: Option<Hex>,
    /// The true value.
    pub truth: Hex,
}

/// The number of functions whose code is kept.
const CODE_MAX: usize = 256;

/// Builds states. It keeps the caches of the walks, and code that was shown before; no state
/// depends on them.
pub struct Builder<'a> {
    pub(super) run: &'a Run,
    pub(super) caches: Vec<Cache>,
    /// Finds where registers are saved.
    pub(super) dwarf: Dwarf,
    pub(super) dwarf_cache: Cache,
    /// Source lines of images whose code was shown with rules.
    pub(super) source_lines: HashMap<ImageId, SourceLines>,
    pub(super) source_texts: SourceTexts,
    /// By address space, start and end.
    code: HashMap<(Contents, u64, u64), Arc<Code>>,
}

impl<'a> Builder<'a> {
    /// Builds states with the unwinders of `run`.
    pub fn new(run: &'a Run) -> Builder<'a> {
        Builder {
            caches: run.engines.iter().map(|_| Cache::new()).collect(),
            dwarf: Dwarf::new(),
            dwarf_cache: Cache::new(),
            source_lines: HashMap::new(),
            source_texts: SourceTexts::default(),
            code: HashMap::new(),
            run,
        }
    }

    /// The walkers, in the order of the walks of each state.
    pub fn walkers(&self) -> Vec<Walker> {
        let columns = self.run.columns();
        let walker = |column: &unwind_sim_judge::run::Column| Walker {
            unwinder: self.run.engines[column.engine].name().to_owned(),
            start: column.variant.map(|variant| variant.as_str()),
            may_err: self.run.may_err(column.engine),
        };
        columns.iter().map(walker).collect()
    }

    /// A state.
    pub fn state(&mut self, at: &StateView<'_>) -> State {
        let view = at.view;
        let sample = view.sample;
        let live = view.live();

        // Each column is an unwinder with one way to start; the cache is shared by all starts of an
        // unwinder.
        let columns = self.run.columns();
        let mut walks = Vec::with_capacity(columns.len());
        for column in &columns {
            let engine: &Engine = &self.run.engines[column.engine];
            let cache = &mut self.caches[column.engine];
            let variant = column.variant_for(view);
            let setting = &self.run.setting;
            let outcome = engine.examine(view, variant, setting, cache);
            walks.push(Walk::of(view, engine, variant, setting, &outcome, cache));
        }

        let threads = match view.world {
            Some(world) => at.threads.iter().map(|t| Thread::of(t, world)).collect(),
            None => Vec::new(),
        };

        State {
            number: view.number,
            pid: sample.pid,
            tid: sample.tid,
            // The name of the thread, or of its task if there is no list of threads.
            name: {
                let own = at.threads.iter().find(|thread| thread.tid == sample.tid);
                let name = own.map(|thread| thread.name.as_str());
                name.or_else(|| view.task_name()).map(str::to_owned)
            },
            time: sample.time,
            place: place(view.space, CodeAddress::Instruction(live.rip())),
            instruction: instruction_at(view, live.rip()),
            code: self.extent(view, live.rip()).map(|(start, _)| Hex(start)),
            changed: changed(at.before, sample.tid, &live),
            registers: known(&live),
            truth: match &sample.truth {
                // A truth that is known to a depth is told apart: frames further out are neither
                // right nor wrong.
                Truth::Complete(_) => "complete",
                Truth::Known(_) => "to a depth",
                Truth::Unknown => "unknown",
            },
            frames: frames(view),
            // The stack is shown with the memory that unwinders get, so that it can be seen what a
            // copy cuts off.
            stack: Stack::of(
                view,
                self.run.setting.view,
                &self.dwarf,
                &mut self.dwarf_cache,
            ),
            faults: self.faults(view, &live),
            walks,
            recorded: {
                let chains = sample.recorded.iter();
                chains.map(|chain| Recorded::of(view, chain)).collect()
            },
            threads,
        }
    }

    /// The rows that are wrong at the instruction, of each unwinder once.
    fn faults(&mut self, view: &View<'_>, live: &Regs) -> Vec<RowFault> {
        let memory = view.memory(self.run.setting.view);
        let subject = Subject::of(view, &memory, live);

        // Fake registers are not those of an instruction, so no row can be judged by them.
        let mut faults = Vec::new();
        if view.sample.regs.is_fake() {
            return faults;
        }

        for (engine, cache) in self.run.engines.iter().zip(&mut self.caches) {
            // Only unwinders with rows have rows that can be wrong.
            let Some(finder) = engine.finder() else {
                continue;
            };

            let found = subject.check_frame(finder, 0, cache);
            faults.extend(found.iter().map(|wrong| {
                RowFault {
                    unwinder: engine.name().to_owned(),
                    code: match wrong.row.as_ref() {
                        Some(row) if row.rule.by_frame_pointer => {
                            // A row by convention is in no table, so the cause is looked for in the
                            // code.
                            frame_pointer_cause(&subject, 0, cache).unwrap_or(wrong.code)
                        }
                        _ => wrong.code,
                    }
                    .as_str(),
                    register: wrong.reg.as_str(),
                    given: wrong.given.map(Hex),
                    truth: Hex(wrong.truth),
                }
            }));
        }
        faults
    }

    /// The first and the end address of the code around an instruction.
    fn extent(&mut self, view: &View<'_>, address: u64) -> Option<(u64, u64)> {
        let engines = self.run.engines.iter().zip(&mut self.caches);
        let finder = |(engine, cache)| Some((Engine::finder(engine)?, cache));
        let mut finders: Vec<(&dyn Finder, &mut Cache)> = engines.filter_map(finder).collect();
        code::extent(view, address, &mut finders)
    }

    /// The code of the function of the next instruction, with the boundaries of the tables' rows.
    pub fn code(&mut self, view: &View<'_>) -> Option<Arc<Code>> {
        self.code_at(view, CodeAddress::Instruction(view.live().rip()))
    }

    /// The code of the function that is at `pc`, with the boundaries of the tables' rows.
    pub fn code_at(&mut self, view: &View<'_>, pc: CodeAddress) -> Option<Arc<Code>> {
        let (start, end) = self.extent(view, pc.symbol_address())?;
        let key = (view.space.contents(), start, end);
        if let Some(known) = self.code.get(&key)
            && known.line_of(pc).is_some()
        {
            return Some(known.clone());
        }
        let engines = self.run.engines.iter().zip(&mut self.caches);
        let finder = |(engine, cache)| Some((Engine::finder(engine)?, cache));
        let mut finders: Vec<(&dyn Finder, &mut Cache)> = engines.filter_map(finder).collect();
        let lines = Arc::new(code::code_from(view, pc, (start, end), &mut finders)?);
        if self.code.len() >= CODE_MAX {
            self.code.clear();
        }
        self.code.insert(key, lines.clone());
        Some(lines)
    }
}

/// The names of registers that differ from those before, if these are of the same thread.
fn changed(before: Option<Before>, tid: u32, live: &Regs) -> Vec<&'static str> {
    let Some(before) = before.filter(|before| before.tid == tid) else {
        return Vec::new();
    };
    let differs = |reg: &Reg| {
        let (was, is) = (before.regs.get(*reg), live.get(*reg));
        was.is_some() && is.is_some() && was != is
    };
    let changed = Reg::ALL.into_iter().filter(differs);
    changed.map(Reg::as_str).collect()
}

/// The known registers.
pub(super) fn known(regs: &Regs) -> Vec<Register> {
    let value = |reg: Reg| Some(Register::new(reg, regs.get(reg)?));
    Reg::ALL.into_iter().filter_map(value).collect()
}

fn frames(view: &View<'_>) -> Vec<TrueFrame> {
    let truth = &view.sample.truth;
    let frame = |index: usize| {
        let frame = truth.frames()[index];
        let (pc, location) = true_place(view, index);

        // Registers are known only of frames where the truth has followed them.
        let saved = frame.saved.map(|values| {
            let pairs = Reg::CALLEE_SAVED.into_iter().zip(values);
            pairs
                .map(|(reg, value)| Register::new(reg, value))
                .collect()
        });
        TrueFrame {
            place: PlaceLine::new(pc, location),
            kind: match frame.kind {
                TrueKind::Top => "top",
                TrueKind::Call => "call",
                TrueKind::Interrupted => "interrupted",
                TrueKind::Trapped => "trapped",
            },
            cfa: Hex(frame.cfa),
            slot: truth.slot(index).map(Hex),
            saved: saved.unwrap_or_default(),
        }
    };
    (0..truth.frames().len()).map(frame).collect()
}
