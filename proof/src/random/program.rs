//! The abstract program: what functions there are, how each keeps its frame, and what it does.
//! It can be shrunk, and says everything that the code depends on.

use super::rng::Rng;

/// How a function is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By a displacement.
    Direct,
    /// Through a register.
    Register,
    /// Through a word in memory.
    Memory,
}

/// How a function keeps its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// Pushes, then room for locals; the CFA counts from rsp.
    Pushes,
    /// Room for all at once, then stores; the CFA counts from rsp.
    Moves,
    /// `push rbp; mov rbp, rsp`, then pushes.
    FramePointer,
    /// `enter`, then stores.
    Enter,
    /// As [`Frame::FramePointer`], with rsp aligned to so many bytes.
    Realigned(u8),
    /// As gcc realigns where arguments lie on the stack: r10 has the CFA, which is then kept in
    /// the frame.
    RealignedByR10(u8),
    /// A scratch register has the CFA. Calls nothing.
    Scratch(u8),
    /// Saves into scratch registers. Calls nothing.
    Registers,
}

impl Frame {
    /// Does it call nothing?
    pub fn is_leaf(self) -> bool {
        matches!(self, Frame::Scratch(_) | Frame::Registers)
    }

    /// Is rbp the frame pointer?
    pub fn has_pointer(self) -> bool {
        matches!(
            self,
            Frame::FramePointer | Frame::Enter | Frame::Realigned(_) | Frame::RealignedByR10(_)
        )
    }
}

/// A fault that a handler skips, or a signal that the program sends to itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raise {
    /// A load from address 0.
    Load,
    /// A division by 0.
    Divide,
    /// `kill(getpid(), SIGUSR1)`.
    Kill,
}

/// How much room is made on the stack, and by which instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// `sub rsp, bytes`.
    Constant,
    /// `sub rsp, register`.
    Variable,
    /// `mov rsp, register`.
    Move,
}

/// What a function does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    /// Calls a function; only so many times if that is said.
    Call {
        /// Which.
        callee: usize,
        /// How.
        how: How,
        /// At most.
        times: Option<u8>,
    },
    /// The same with words pushed before, and taken off by pops or an addition.
    Arguments {
        /// Which.
        callee: usize,
        /// How many words.
        words: u8,
        /// By pops?
        pops: bool,
    },
    /// Calls a function in a loop.
    Loop {
        /// Which.
        callee: usize,
        /// How often.
        times: u8,
    },
    /// Moves rsp down; only with a frame pointer.
    Room {
        /// Bytes.
        bytes: u16,
        /// How.
        room: Room,
    },
    /// Calls the next instruction, which pops the address.
    Thunk,
    /// Calls a function by way of a thunk that overwrites its return address.
    Retpoline {
        /// Which.
        callee: usize,
    },
    /// A jump through a table with so many entries.
    Table {
        /// Entries: 2 or 4.
        cases: u8,
    },
    /// Returns, the first so many times.
    Return {
        /// How often.
        times: u8,
    },
    /// A part in another section, reached the first so many times.
    Cold {
        /// How often.
        times: u8,
        /// What is done there.
        body: Vec<Statement>,
    },
    /// A signal, the first so many times.
    Raise {
        /// Which.
        raise: Raise,
        /// How often.
        times: u8,
    },
    /// Something that touches no frame.
    Filler,
}

/// How a function ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// `ret`.
    Return,
    /// A jump to another function.
    Tail {
        /// Which.
        callee: usize,
        /// How.
        how: How,
    },
    /// The address of another function is pushed, and returned to.
    PushAndReturn {
        /// Which.
        callee: usize,
    },
}

/// A signal in a prologue or in the last epilogue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Before which of their instructions that move the layout.
    pub step: u8,
    /// Which.
    pub raise: Raise,
    /// The first so many times.
    pub times: u8,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// How it keeps its frame.
    pub frame: Frame,
    /// Which callee-saved registers it uses, in the order in which it saves them: indices of
    /// [`super::row::SAVED`].
    pub saves: Vec<u8>,
    /// Bytes for locals, a multiple of 8.
    pub locals: u16,
    /// What it does.
    pub body: Vec<Statement>,
    /// How it ends.
    pub end: End,
    /// Signals where the layout changes.
    pub points: Vec<Point>,
    /// Do rows say of a popped register that it is as it was? Else they go on to name its slot,
    /// as those of gcc do.
    pub restores: bool,
    /// Chooses among equal ways to say something.
    pub taste: u64,
}

/// What is done with signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handlers {
    /// The function that skips a faulting instruction.
    pub fault: usize,
    /// The one for signals that were sent.
    pub sent: usize,
    /// Do they run on a stack of their own?
    pub own_stack: bool,
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RandomProgram {
    /// What it was made from.
    pub seed: u64,
    /// Its functions; the first is called by the entry point.
    pub functions: Vec<Function>,
    /// What is done with signals, if there are any.
    pub handlers: Option<Handlers>,
    /// How many functions that do not return it ends through.
    pub finish: u8,
    /// Can every row be said in SFrame and in ORC?
    pub plain: bool,
}

/// Most functions.
const FUNCTIONS_MAX: usize = 12;
/// A function that is called costs at most so many calls altogether.
const CALLS_MAX: u32 = 60;

struct Generator {
    rng: Rng,
    plain: bool,
    signals: bool,
    /// How many calls a call of each function makes, itself included; those with a bound on how
    /// often they are made do not count.
    costs: Vec<u32>,
    count: usize,
    /// The first handler.
    handlers: usize,
}

impl RandomProgram {
    /// The program of a seed.
    pub fn random(seed: u64) -> RandomProgram {
        let mut rng = Rng::new(seed, 1);
        let plain = rng.chance(1, 4);
        let signals = !plain && rng.chance(1, 2);
        let ordinary = 2 + rng.below(FUNCTIONS_MAX - 3);
        let count = ordinary + if signals { 2 } else { 0 };
        let handlers = signals.then(|| Handlers {
            fault: ordinary,
            sent: ordinary + 1,
            own_stack: rng.chance(1, 2),
        });
        let finish = rng.below(3) as u8;
        let mut generator = Generator {
            rng,
            plain,
            signals,
            costs: vec![0; count],
            count,
            handlers: ordinary,
        };
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
        self.costs[at] = 1;
        let is_handler = at >= self.handlers;
        let frame = self.frame(is_handler || at == 0);
        let saves = self.saves(frame);
        let words = if self.rng.chance(1, 8) { 40 } else { 5 };
        let mut function = Function {
            locals: 8 * self.rng.below(words) as u16,
            frame,
            saves,
            body: Vec::new(),
            end: End::Return,
            points: Vec::new(),
            restores: self.rng.chance(1, 2),
            taste: self.rng.next(),
        };
        let statements = match () {
            () if frame.is_leaf() => self.rng.below(3),
            () if is_handler => self.rng.below(3),
            () => 1 + self.rng.below(6),
        };
        for _ in 0..statements {
            let statement = self.statement(at, &function, false);
            function.body.push(statement);
        }
        if !is_handler && self.rng.chance(1, 5) {
            function.end = self.tail(at);
        }
        let no_points = matches!(frame, Frame::Scratch(_) | Frame::Registers);
        if self.signals && !no_points && self.rng.chance(1, 3) {
            for _ in 0..1 + self.rng.below(2) {
                let step = self.rng.below(12) as u8;
                let point = Point {
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

    fn how(&mut self) -> How {
        self.rng
            .pick(&[How::Direct, How::Direct, How::Register, How::Memory])
    }

    fn raise(&mut self) -> Raise {
        self.rng.pick(&[Raise::Load, Raise::Divide, Raise::Kill])
    }

    /// A function that may be called so many times more.
    fn callee(&mut self, at: usize, times: u32) -> Option<usize> {
        // Handlers are not called, and may call what comes late.
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
        if function.frame.is_leaf() {
            let cases = self.rng.pick(&[2, 4]);
            return match self.rng.chance(1, 3) {
                true => Statement::Table { cases },
                false => Statement::Filler,
            };
        }
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
            11..=12 if function.frame.has_pointer() && !nested => Some(Statement::Room {
                bytes: 8 * (1 + self.rng.below(30)) as u16,
                room: self.rng.pick(&[Room::Constant, Room::Variable, Room::Move]),
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
            _ if self.signals => Some(Statement::Raise {
                raise: self.raise(),
                times,
            }),
            _ => None,
        };
        made.unwrap_or(Statement::Filler)
    }
}
