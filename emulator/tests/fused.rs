//! A machine that nobody observes executes several instructions with one operation. It must do the
//! same as one that is observed, instruction by instruction, also at faults and limits.

use crate::random::Random;
use std::collections::HashSet;
use unwind_sim_emulator::address_space::Guard;
use unwind_sim_emulator::machine::BlockId;
use unwind_sim_emulator::state::reg;
use unwind_sim_emulator::{AddressSpace, Core, Executed, Exit, Machine, Observer, Permissions};

const CODE: u64 = 0x40_0000;
/// One page; what is around it cannot be accessed.
const DATA: u64 = 0x50_0000;
const PAGE: u64 = 0x1000;
const SEEDS: u64 = 4000;
const INSTRUCTIONS: usize = 24;

/// Random instructions.
struct Draw(Random);

impl Draw {
    fn below(&mut self, n: u64) -> u8 {
        self.0.below_u64(n) as u8
    }

    /// A register; rsp is rare.
    fn register(&mut self) -> u8 {
        match self.below(8) {
            4 if self.below(4) != 0 => 0,
            register => register,
        }
    }

    /// One of rbx, rbp, rsi and rdi, which point into the data until they are changed.
    fn base(&mut self) -> u8 {
        [3, 5, 6, 7][usize::from(self.below(4))]
    }

    /// ModRM and an 8-bit displacement.
    fn memory(&mut self, register: u8) -> [u8; 2] {
        [0x40 | register << 3 | self.base(), self.below(64)]
    }

    fn registers(&mut self) -> u8 {
        0xc0 | self.register() << 3 | self.register()
    }

    /// An instruction that is often joined with its neighbours.
    fn instruction(&mut self) -> Vec<u8> {
        // 0x48 is REX.W: operands of 64 bits (Intel SDM volume 2).
        let wide: &[u8] = if self.below(2) == 0 { &[0x48] } else { &[] };
        let with = |rest: &[u8]| [wide, rest].concat();
        let register = self.register();
        let [modrm, disp] = self.memory(register);
        let immediate = self.below(256);

        // /7 is `cmp`, /0 `test` and `add`, /4 `and`, /5 `sub`.
        let group = [0, 4, 5, 7][usize::from(self.below(4))];

        match self.below(16) {
            0 | 1 => vec![0x50 | register],
            2 | 3 => vec![0x58 | register],
            4 => with(&[0x89, self.registers()]),
            5 | 6 => with(&[0x8b, modrm, disp]),
            7 | 8 => with(&[0x89, modrm, disp]),
            9 => with(&[
                [0x39, 0x85, 0x01, 0x29, 0x21][usize::from(self.below(5))],
                self.registers(),
            ]),
            10 => with(&[0x83, 0xc0 | group << 3 | register, immediate]),
            11 => with(&[[0x3b, 0x39, 0x85][usize::from(self.below(3))], modrm, disp]),
            12 => with(&[0x83, 0x78 | self.base(), disp, immediate]),
            13 => vec![[0x38, 0x3a, 0x84][usize::from(self.below(3))], modrm, disp],
            14 => vec![0x80, 0x78 | self.base(), disp, immediate],
            // A load and the test of its result.
            _ => match self.below(2) {
                0 => with(&[
                    0x8b,
                    modrm,
                    disp,
                    wide.first().copied().unwrap_or(0x40),
                    0x85,
                    0xc0 | register << 3 | register,
                ]),
                _ => vec![
                    0x0f,
                    0xb6,
                    modrm,
                    disp,
                    0x40,
                    0x84,
                    0xc0 | register << 3 | register,
                ],
            },
        }
    }
}

/// Random instructions and forward branches, then `hlt`.
fn program(random: &mut Draw) -> Vec<u8> {
    let mut code = Vec::new();
    for _ in 0..INSTRUCTIONS {
        let insn = random.instruction();
        code.extend(&insn);
        if random.below(3) == 0 {
            // Over the next instruction.
            let next = random.instruction();
            code.extend([0x70 | random.below(16), next.len() as u8]);
            code.extend(next);
        }
    }
    code.push(0xf4);
    code
}

fn machine(code: &[u8], random: &mut Draw) -> Machine {
    let mut memory = AddressSpace::default();
    let text = CODE..CODE + PAGE;
    memory.map(text, Permissions::READ_EXECUTE).expect("free");
    memory.poke(CODE, code).expect("mapped");
    let data = DATA..DATA + PAGE;
    memory.map(data, Permissions::READ_WRITE).expect("free");
    let words: Vec<u8> = (0..PAGE / 8)
        .flat_map(|_| random.0.bits().to_le_bytes())
        .collect();
    memory.poke(DATA, &words).expect("mapped");
    let mut machine = Machine::new(Core::new(memory));
    let state = &mut machine.core.state;
    for register in 0..8 {
        // Near both ends of the page, or in the middle.
        let offset = [0, 24, 0x800, PAGE - 100, PAGE - 40, PAGE - 8];
        let offset = offset[usize::from(random.below(6))];
        state.set_gpr(register, DATA + offset + u64::from(random.below(2)));
    }
    state.set_gpr(reg::RAX, random.0.below_u64(3));
    state.set_gpr(reg::RCX, random.0.bits());
    state.rip = CODE;
    machine
}

struct CountingObserver(u64);

impl Observer for CountingObserver {
    fn before(&mut self, _: &Core, _: &Executed) {
        self.0 += 1;
    }

    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

/// Wants only every fourth operation or so, and counts what is executed without it.
struct SparseObserver {
    executed: u64,
    /// How often it wanted to see the end of a block, but not its start.
    within: u64,
    quiet: bool,
    /// The operation that it asked for.
    wanted: usize,
    /// Where it guards.
    guard: Guard,
    /// The instructions that it saw.
    seen: HashSet<u64>,
    /// How many of them it saw because of the guard.
    guarded: u64,
}

impl SparseObserver {
    fn new(guard: Guard) -> SparseObserver {
        SparseObserver {
            executed: 0,
            within: 0,
            quiet: false,
            wanted: 0,
            guard,
            seen: HashSet::new(),
            guarded: 0,
        }
    }
}

impl Observer for SparseObserver {
    fn enter(&mut self, core: &Core, _: Option<BlockId>, operations: usize, _: u64) -> usize {
        self.quiet = core.state.rip.is_multiple_of(5);
        self.wanted = if self.quiet {
            (core.state.rip / 5 % 7) as usize
        } else {
            0
        };
        self.quiet &= self.wanted > 0;
        self.within += u64::from(self.quiet && self.wanted < operations);
        self.wanted
    }

    fn before(&mut self, _: &Core, insn: &Executed) {
        assert!(insn.index as usize >= self.wanted);
        self.quiet = false;
        self.seen.insert(insn.rip);
    }

    fn after(&mut self, _: &Core, _: &Executed, _: u64) {
        assert!(!self.quiet);
        self.executed += 1;
    }

    fn next_wanted(&mut self, insn: &Executed) -> usize {
        self.quiet = !insn.rip.is_multiple_of(3);
        self.wanted = if self.quiet {
            insn.index as usize + 4
        } else {
            0
        };
        self.wanted
    }

    fn stopped(&mut self, insn: &Executed, left: u64) {
        assert!(self.quiet && left > 0 && insn.len > 0);
        // A trap, `hlt` and the like are reported as executed.
        self.quiet = false;
    }

    fn guard(&self) -> Guard {
        self.guard
    }

    fn guarded(&mut self, core: &Core, insn: &Executed) {
        assert!(!self.quiet && (insn.index as usize) < self.wanted);
        self.wanted = 0;
        self.before(core, insn);
        self.guarded += 1;
    }
}

/// Keeps the instructions that change the bytes at the start of the data, which are in the guard.
struct Changers {
    last: Vec<u8>,
    all: HashSet<u64>,
}

/// Bytes at the start of the data that are guarded.
const GUARDED: u64 = 64;

fn guarded_bytes(core: &Core) -> Vec<u8> {
    let mut bytes = vec![0; GUARDED as usize];
    core.memory.peek(DATA, &mut bytes).expect("mapped");
    bytes
}

impl Observer for Changers {
    fn before(&mut self, core: &Core, _: &Executed) {
        self.last = guarded_bytes(core);
    }

    fn after(&mut self, core: &Core, insn: &Executed, _: u64) {
        if guarded_bytes(core) != self.last {
            self.all.insert(insn.rip);
        }
    }
}

/// Registers, flags, memory, and the number of instructions.
fn outcome(machine: &Machine) -> (Vec<u64>, Vec<u8>) {
    let state = &machine.core.state;
    let registers = (0..16).map(|number| state.gpr(number));
    let others = [state.rflags(), state.rip, machine.executed()];
    let mut memory = vec![0; PAGE as usize];
    machine.core.memory.peek(DATA, &mut memory).expect("mapped");
    (registers.chain(others).collect(), memory)
}

#[test]
fn joined_instructions_do_what_each_does() {
    let (mut joined, mut alone, mut faults) = (0, 0, 0);
    let (mut seen, mut within, mut all) = (0, 0, 0);

    for seed in 0..SEEDS {
        let mut random = Draw(Random::new(seed));
        let code = program(&mut random);
        let first = machine(&code, &mut random);
        // A limit may fall between two joined instructions.
        let limits = [u64::MAX, u64::from(random.below(INSTRUCTIONS as u64))];
        for limit in limits {
            // An observer that sees every instruction keeps the machine from joining any.
            let (mut fused, mut watched) = (first.clone(), first.clone());
            let mut watch = CountingObserver(0);
            let ends = (fused.run(limit, &mut ()), watched.run(limit, &mut watch));
            assert_eq!(ends.0, ends.1, "seed {seed}: {code:02x?}");
            assert!(
                outcome(&fused) == outcome(&watched),
                "seed {seed}: {code:02x?}"
            );

            // An observer that wants only some of them must change nothing either.
            let mut glanced = first.clone();
            let mut glance = SparseObserver::new(Guard::NONE);
            assert_eq!(glanced.run(limit, &mut glance), ends.0, "seed {seed}");
            assert!(
                outcome(&fused) == outcome(&glanced),
                "seed {seed}: {code:02x?}"
            );

            seen += glance.executed;
            within += glance.within;
            all += glanced.executed();

            // A watch sees an instruction before it faults; the machine counts only those that
            // ended.
            let is_fault = matches!(ends.0, Exit::Exception(_));
            assert_eq!(
                watch.0,
                watched.executed() + u64::from(is_fault),
                "seed {seed}"
            );
            faults += u64::from(is_fault);
            joined += fused.code_bytes();
            alone += watched.code_bytes();
        }
    }

    // Some instructions were seen, and most were not.
    assert!(seen > 0 && seen < all / 2, "{seen} of {all}");
    assert!(within > 0);
    // The programs have what is joined, and every kind of end.
    assert!(joined < alone, "{joined} bytes, {alone} bytes");
    assert!(
        (SEEDS / 10..SEEDS * 2 - SEEDS / 10).contains(&faults),
        "{faults}"
    );
}

/// What is guarded is stored to only by instructions that the observer sees, however few it wants to see,
/// and these do what they do without a guard.
#[test]
fn what_is_guarded_is_seen() {
    let (mut guarded, mut changed) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Draw(Random::new(seed));
        let code = program(&mut random);
        let first = machine(&code, &mut random);

        let (mut watched, mut glanced) = (first.clone(), first);
        let mut changers = Changers {
            last: Vec::new(),
            all: HashSet::new(),
        };
        let end = watched.run(u64::MAX, &mut changers);

        // The start of the data by itself, and all from the last bytes on.
        let guard = Guard::new(DATA + PAGE - 16, DATA..DATA + GUARDED);
        let mut glance = SparseObserver::new(guard);
        assert_eq!(glanced.run(u64::MAX, &mut glance), end, "seed {seed}");
        assert!(
            outcome(&watched) == outcome(&glanced),
            "seed {seed}: {code:02x?}"
        );

        // There are no loops: an instruction is executed at most once.
        let unseen: Vec<_> = changers.all.difference(&glance.seen).collect();
        assert!(unseen.is_empty(), "seed {seed}: {unseen:x?} of {code:02x?}");
        guarded += glance.guarded;
        changed += changers.all.len() as u64;
    }
    assert!(guarded > SEEDS / 4, "{guarded}");
    assert!(changed > SEEDS / 4, "{changed}");
}
