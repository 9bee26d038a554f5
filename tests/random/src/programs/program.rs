//! The abstract program: its functions, what kind of frame each one has, and what it does. It can
//! be shrunk, and determines the code completely.

mod jumps;

pub use jumps::{ReturnAddressPush, ReturnAddressSave, ReturnSite};

use super::numbers::numbers;
use crate::random::Random;
use jumps::is_doubtful;

/// How a function is called or jumped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferKind {
    /// By a relative displacement.
    Direct,
    /// Through a register.
    Register,
    /// Through a pointer in memory.
    Memory,
}

/// The kinds of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// Pushes, then room for locals; the CFA is based on rsp.
    Pushes,
    /// Allocates everything at once, then stores; the CFA is based on rsp.
    Moves,
    /// `push rbp; mov rbp, rsp`, then pushes.
    FramePointer,
    /// `enter`, then stores.
    Enter,
    /// Like [`Frame::FramePointer`], with rsp aligned to this many bytes.
    Realigned(u8),
    /// Realigned as gcc does if there are arguments on the stack: r10 holds the CFA, which is then
    /// saved in the frame.
    RealignedByR10(u8),
    /// A scratch register holds the CFA. Calls nothing.
    Scratch(u8),
    /// Saves into scratch registers. Calls nothing.
    Registers,
}

impl Frame {
    /// Whether functions with this frame call nothing.
    pub fn is_leaf(self) -> bool {
        matches!(self, Frame::Scratch(_) | Frame::Registers)
    }

    /// Whether rbp is the frame pointer.
    pub fn has_pointer(self) -> bool {
        matches!(
            self,
            Frame::FramePointer | Frame::Enter | Frame::Realigned(_) | Frame::RealignedByR10(_)
        )
    }
}

/// A fault that a handler skips, or a signal that the program sends itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raise {
    /// A load from address 0.
    Load,
    /// A division by 0.
    Divide,
    /// `kill(getpid(), SIGUSR1)`.
    Kill,
}

/// How the stack is extended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackAdjustment {
    /// `sub rsp, bytes`.
    Constant,
    /// `sub rsp, register`.
    Variable,
    /// `mov rsp, register`.
    Move,
}

/// What a function does at one point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    /// Calls a function, only the first `times` times if given.
    Call {
        /// Index of the function.
        callee: usize,
        /// How it is called.
        how: TransferKind,
        /// Maximum number of calls.
        times: Option<u8>,
    },
    /// Calls a function after pushing words, which are removed by pops or an addition.
    Arguments {
        /// Index of the function.
        callee: usize,
        /// Number of words.
        words: u8,
        /// Whether they are popped.
        pops: bool,
    },
    /// Calls a function in a loop.
    Loop {
        /// Index of the function.
        callee: usize,
        /// Number of calls.
        times: u8,
    },
    /// Extends the stack; only with a frame pointer.
    Room {
        /// Number of bytes.
        bytes: u16,
        /// By which instructions.
        room: StackAdjustment,
    },
    /// Calls the next instruction, which pops the address.
    Thunk,
    /// Calls a function through a thunk that overwrites its own return address.
    Retpoline {
        /// Index of the function.
        callee: usize,
    },
    /// Puts a return address on the stack, and jumps to a function.
    Planted {
        /// Index of the function.
        callee: usize,
        /// How it gets there.
        put: ReturnAddressPush,
        /// How the function is jumped to; none for a `ret` to its address, pushed below.
        how: Option<TransferKind>,
        /// Where the return address is.
        back: ReturnSite,
    },
    /// Puts a return address into a register, and jumps to code that calls a function and returns by
    /// the register.
    Linked {
        /// Index of the function.
        callee: usize,
        /// The index of a register that the function has saved, in [`Function::saves`]; none for a
        /// scratch register.
        register: Option<u8>,
        /// Whether the code pops the address again before it returns.
        pops: bool,
    },
    /// Calls a function by way of code that moves its return address.
    Kept {
        /// Index of the function.
        callee: usize,
        /// What that code does.
        keep: ReturnAddressSave,
    },
    /// Jumps through a table.
    Table {
        /// Number of entries: 2 or 4.
        cases: u8,
    },
    /// Returns early, the first `times` times.
    Return {
        /// Number of times.
        times: u8,
    },
    /// Executes a part in another section, the first `times` times.
    Cold {
        /// Number of times.
        times: u8,
        /// What is done there.
        body: Vec<Statement>,
    },
    /// Raises a signal, the first `times` times.
    Raise {
        /// The kind of signal.
        raise: Raise,
        /// Number of times.
        times: u8,
    },
    /// Something that does not touch the frame.
    Filler,
}

/// How a function ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// `ret`.
    Return,
    /// A jump to another function.
    Tail {
        /// Index of the function.
        callee: usize,
        /// How it is jumped to.
        how: TransferKind,
    },
    /// Pushes the address of another function and returns to it.
    PushAndReturn {
        /// Index of the function.
        callee: usize,
    },
}

/// A signal in a prologue or the last epilogue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalPoint {
    /// The number of layout changes before it.
    pub step: u8,
    /// The kind of signal.
    pub raise: Raise,
    /// Raised only the first `times` times.
    pub times: u8,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// The kind of frame.
    pub frame: Frame,
    /// The callee-saved registers that it uses, in the order in which it saves them, as indices of
    /// [`super::row::SAVED`].
    pub saves: Vec<u8>,
    /// Bytes for locals, a multiple of 8.
    pub locals: u16,
    /// What it does.
    pub body: Vec<Statement>,
    /// How it ends.
    pub end: End,
    /// Signals raised where the layout changes.
    pub points: Vec<SignalPoint>,
    /// Whether rows describe a popped register as unchanged. Otherwise they keep naming its slot,
    /// as gcc's do.
    pub restores: bool,
    /// Random bits that choose between equivalent instructions.
    pub taste: u64,
}

/// The signal handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handlers {
    /// The function that skips a faulting instruction.
    pub fault: usize,
    /// The function that handles sent signals.
    pub sent: usize,
    /// Whether they run on an alternate stack.
    pub own_stack: bool,
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RandomProgram {
    /// The seed from which it was generated.
    pub seed: u64,
    /// The functions; the entry point calls the first one.
    pub functions: Vec<Function>,
    /// The signal handlers, if any.
    pub handlers: Option<Handlers>,
    /// The number of functions that do not return through which the program ends.
    pub finish: u8,
    /// Whether SFrame and ORC can represent every row.
    pub plain: bool,
}

/// Maximum number of functions.
const FUNCTIONS_MAX: usize = 12;
/// Maximum total calls caused by one call of a function.
const CALLS_MAX: u32 = 60;

struct Generator {
    rng: Random,
    /// Decides about calls by jumps, if there are any.
    jumps: Option<Random>,
    plain: bool,
    signals: bool,
    /// Number of calls made by a call of each function, including itself; calls with their own
    /// limit do not count.
    costs: Vec<u32>,
    count: usize,
    /// Index of the first handler.
    handlers: usize,
}

impl RandomProgram {
    /// Whether some frames may be unknown when the program makes them for the first time: whether
    /// what it puts on the stack is a return address is not certain then.
    pub fn is_doubtful(&self) -> bool {
        let statements = self.statements();
        // An address that code has read may be pushed, and be behind a jump that is a call elsewhere.
        let reads = statements
            .iter()
            .any(|(_, s)| matches!(s, Statement::Thunk));
        statements.iter().any(|(_, s)| is_doubtful(s, reads))
    }

    /// All statements, each with its function.
    pub(super) fn statements(&self) -> Vec<(&Function, &Statement)> {
        let mut out = Vec::new();
        for function in &self.functions {
            let mut open: Vec<&Statement> = function.body.iter().collect();
            while let Some(statement) = open.pop() {
                if let Statement::Cold { body, .. } = statement {
                    open.extend(body);
                }
                out.push((function, statement));
            }
        }
        out
    }

    /// Generates the program of a seed.
    pub fn random(seed: u64) -> RandomProgram {
        RandomProgram::generate(seed, Some(numbers(seed, 4)))
    }

    /// The same with no calls but by call instructions.
    pub fn by_calls(seed: u64) -> RandomProgram {
        RandomProgram::generate(seed, None)
    }

    fn generate(seed: u64, jumps: Option<Random>) -> RandomProgram {
        let mut rng = numbers(seed, 1);
        // A quarter of the programs is plain, so that SFrame and ORC can represent all of their
        // rows.
        let plain = rng.chance(1, 4);
        let signals = !plain && rng.chance(1, 2);
        let ordinary = 2 + rng.below(FUNCTIONS_MAX - 3);

        // The two handlers come last.
        let count = ordinary + if signals { 2 } else { 0 };
        let handlers = signals.then(|| Handlers {
            fault: ordinary,
            sent: ordinary + 1,
            own_stack: rng.chance(1, 2),
        });
        let finish = rng.below(3) as u8;

        let mut generator = Generator {
            rng,
            jumps,
            plain,
            signals,
            costs: vec![0; count],
            count,
            handlers: ordinary,
        };

        // From the last one on: what a function calls must have its cost.
        let mut functions: Vec<Function> =
            (0..count).rev().map(|at| generator.function(at)).collect();
        functions.reverse();
        RandomProgram {
            seed,
            functions,
            handlers,
            finish,
            plain,
        }
    }
}

impl Generator {
    fn function(&mut self, at: usize) -> Function {
        // What a call of this function costs; calls to others add to it.
        self.costs[at] = 1;
        let is_handler = at >= self.handlers;
        let frame = self.frame(is_handler || at == 0);
        let saves = self.saves(frame);

        // Sometimes more locals than a displacement of 8 bits reaches.
        let words = if self.rng.chance(1, 8) { 40 } else { 5 };

        let mut function = Function {
            locals: 8 * self.rng.below(words) as u16,
            frame,
            saves,
            body: Vec::new(),
            end: End::Return,
            points: Vec::new(),
            restores: self.rng.chance(1, 2),
            taste: self.rng.bits(),
        };

        let statements = if frame.is_leaf() || is_handler {
            self.rng.below(3)
        } else {
            1 + self.rng.below(6)
        };
        for _ in 0..statements {
            let statement = self.statement(at, &function, false);
            function.body.push(statement);
        }

        // Calls without a call instruction, which plain programs do not have.
        if !self.plain && !frame.is_leaf() {
            self.add_jumps(at, &mut function);
        }
        if !is_handler && self.rng.chance(1, 5) {
            function.end = self.tail(at);
        }

        // Prologues of these frames have no steps at which a signal could be raised.
        let no_points = matches!(frame, Frame::Scratch(_) | Frame::Registers);
        if self.signals && !no_points && self.rng.chance(1, 3) {
            for _ in 0..1 + self.rng.below(2) {
                let step = self.rng.below(12) as u8;
                let point = SignalPoint {
                    step,
                    raise: self.raise(),
                    times: 1 + self.rng.below(2) as u8,
                };
                function.points.push(point);
            }
        }

        function
    }

    fn frame(&mut self, calls: bool) -> Frame {
        loop {
            let frame = match self.rng.below(16) {
                0..=4 => Frame::Pushes,
                5..=6 => Frame::Moves,
                7..=9 => Frame::FramePointer,
                10 => Frame::Enter,
                11..=12 => Frame::Realigned(self.rng.pick(&[16, 32, 64])),
                13 => Frame::RealignedByR10(self.rng.pick(&[16, 32, 64])),
                14 => Frame::Scratch(self.rng.pick(&[1, 2, 6, 8, 9, 10, 11])),
                _ => Frame::Registers,
            };
            let fits = !(calls && frame.is_leaf());
            let strange = matches!(
                frame,
                Frame::RealignedByR10(_) | Frame::Scratch(_) | Frame::Registers
            );
            if fits && !(self.plain && strange) {
                return frame;
            }
        }
    }

    fn saves(&mut self, frame: Frame) -> Vec<u8> {
        let mut all: Vec<u8> = (0..6).collect();
        if frame.has_pointer() {
            all.remove(super::row::RBP_SAVED);
        }
        self.rng.shuffle(&mut all);
        let most = match frame {
            Frame::Scratch(_) | Frame::Registers => 2,
            _ => all.len(),
        };
        all.truncate(self.rng.below(most + 1));
        all
    }

    fn how(&mut self) -> TransferKind {
        self.rng.pick(&[
            TransferKind::Direct,
            TransferKind::Direct,
            TransferKind::Register,
            TransferKind::Memory,
        ])
    }

    fn raise(&mut self) -> Raise {
        self.rng.pick(&[Raise::Load, Raise::Divide, Raise::Kill])
    }

    /// A function that may be called `times` more times.
    fn callee(&mut self, at: usize, times: u32) -> Option<usize> {
        // Handlers are never called, and may only call the last functions.
        let from = if at >= self.handlers {
            self.handlers.saturating_sub(2)
        } else {
            at + 1
        };
        let count = self.handlers.checked_sub(from)?;
        let callee = from + self.rng.below(count);
        let cost = self.costs.get(callee)?.saturating_mul(times);
        let fits = callee < self.handlers && self.costs[at] + cost <= CALLS_MAX;
        if !fits {
            return None;
        }
        self.costs[at] += cost;
        Some(callee)
    }

    fn tail(&mut self, at: usize) -> End {
        match self.callee(at, 1) {
            None => End::Return,
            Some(callee) if self.rng.chance(1, 3) => End::PushAndReturn { callee },
            Some(callee) => End::Tail {
                callee,
                how: self.how(),
            },
        }
    }

    fn statement(&mut self, at: usize, function: &Function, nested: bool) -> Statement {
        // A leaf must not call anything.
        if function.frame.is_leaf() {
            let cases = self.rng.pick(&[2, 4]);
            return if self.rng.chance(1, 3) {
                Statement::Table { cases }
            } else {
                Statement::Filler
            };
        }

        // The weights: plain calls are the most frequent.
        let times = 1 + self.rng.below(3) as u8;
        let made = match self.rng.below(20) {
            0..=5 => {
                let how = self.how();
                self.callee(at, 1).map(|callee| Statement::Call {
                    callee,
                    how,
                    times: None,
                })
            }
            // One of the first functions, which may be active already, so the call is limited.
            6..=7 => Some(Statement::Call {
                callee: self.rng.below(self.handlers.min(self.count)),
                how: self.how(),
                times: Some(times),
            }),
            8..=9 => {
                let words = 1 + self.rng.below(5) as u8;
                let pops = self.rng.chance(1, 2);
                self.callee(at, 1).map(|callee| Statement::Arguments {
                    callee,
                    words,
                    pops,
                })
            }
            10 => {
                let times = 2 + self.rng.below(3) as u8;
                self.callee(at, times.into())
                    .map(|callee| Statement::Loop { callee, times })
            }
            // rsp may move only where the CFA does not depend on it.
            11..=12 if function.frame.has_pointer() && !nested => Some(Statement::Room {
                bytes: 8 * (1 + self.rng.below(30)) as u16,
                room: self.rng.pick(&[
                    StackAdjustment::Constant,
                    StackAdjustment::Variable,
                    StackAdjustment::Move,
                ]),
            }),
            13 => Some(Statement::Thunk),
            14 => Some(Statement::Table {
                cases: self.rng.pick(&[2, 4]),
            }),
            15 if !nested => Some(Statement::Return { times }),
            16..=17 if !nested => {
                let count = self.rng.below(3);
                let body = (0..count)
                    .map(|_| self.statement(at, function, true))
                    .collect();
                Some(Statement::Cold { times, body })
            }
            18 if !self.plain => self
                .callee(at, 1)
                .map(|callee| Statement::Retpoline { callee }),
            // What is left over, if the program has handlers.
            _ if self.signals => Some(Statement::Raise {
                raise: self.raise(),
                times,
            }),
            _ => None,
        };

        // What was drawn is not possible here.
        made.unwrap_or(Statement::Filler)
    }
}
