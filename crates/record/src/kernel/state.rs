//! `struct unwind_state` in the memory of a kernel.

use unwind_sim_recordings::kernel::Btf;
use unwind_sim_unwind::kernel::{
    Cursors, FpState, GuessState, OrcState, RegsPtr, StackInfo, StackType, State, UnwinderKind,
};

/// Offsets of the members of `struct unwind_state`, for any unwinder.
pub(crate) struct StateLayout {
    kind: UnwinderKind,
    /// Offsets of the [`SHARED`] members, followed by those of the unwinder's own.
    offsets: Vec<u64>,
}

const SHARED: [&str; 6] = [
    "stack_info.type",
    "stack_info.begin",
    "stack_info.end",
    "stack_info.next_sp",
    "stack_mask",
    "graph_idx",
];
const ORC: [&str; 8] = [
    "error",
    "signal",
    "full_regs",
    "sp",
    "bp",
    "ip",
    "regs",
    "prev_regs",
];
const FP: [&str; 7] = ["error", "got_irq", "bp", "orig_sp", "ip", "next_bp", "regs"];
const GUESS: [&str; 1] = ["sp"];

impl StateLayout {
    /// Detects the unwinder: a kernel is built with one, and the struct has only its members.
    pub(crate) fn new(btf: &Btf) -> Option<StateLayout> {
        let kinds: [(UnwinderKind, &[&str]); 3] = [
            (UnwinderKind::Orc, &ORC),
            (UnwinderKind::Fp, &FP),
            (UnwinderKind::Guess, &GUESS),
        ];
        kinds.into_iter().find_map(|(kind, own)| {
            let members = SHARED.iter().chain(own);
            let offsets = members.map(|member| btf.offset("unwind_state", member));
            Some(StateLayout {
                kind,
                offsets: offsets.collect::<Option<_>>()?,
            })
        })
    }

    /// The unwinder that the kernel was built with.
    pub(crate) const fn kind(&self) -> UnwinderKind {
        self.kind
    }

    pub(crate) fn state(&self, bytes: &[u8]) -> State {
        // Little-endian, so the last byte comes first.
        let part = |member: usize, len: usize| {
            let at = self.offsets[member] as usize;
            let bytes = bytes.get(at..at + len).unwrap_or_default().iter().rev();
            bytes.fold(0, |value, b| value << 8 | u64::from(*b))
        };

        // The bounds of the stack on which the unwinder is, as it has them.
        let stack = StackInfo {
            kind: StackType::from_number(part(0, 4)).unwrap_or_default(),
            begin: part(1, 8),
            end: part(2, 8),
            next_sp: part(3, 8),
        };
        let stack_mask = part(4, 8);
        let cursors = Cursors {
            graph_idx: part(5, 4) as u32,
            rethook: 0,
        };

        // The offsets of the unwinder's own members follow those of the shared ones.
        let own = |member| SHARED.len() + member;
        let flag = |member| part(own(member), 1) != 0;
        let word = |member| part(own(member), 8);
        let pointer = |member| match word(member) {
            0 => RegsPtr::None,
            address => RegsPtr::At(address),
        };

        // Each unwinder has its own members (`arch/x86/include/asm/unwind.h`).
        match self.kind {
            UnwinderKind::Orc => State::Orc(OrcState {
                stack,
                stack_mask,
                cursors,
                error: flag(0),
                signal: flag(1),
                full_regs: flag(2),
                sp: word(3),
                bp: word(4),
                ip: word(5),
                regs: pointer(6),
                prev_regs: pointer(7),
            }),
            UnwinderKind::Fp => State::Fp(FpState {
                stack,
                stack_mask,
                cursors,
                error: flag(0),
                got_irq: flag(1),
                bp: word(2),
                orig_sp: word(3),
                ip: word(4),
                next_bp: word(5),
                regs: pointer(6),
            }),
            UnwinderKind::Guess => State::Guess(GuessState {
                stack,
                stack_mask,
                sp: word(0),
            }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        let last = self.offsets.iter().max().map_or(0, |last| *last);
        last as usize + 8
    }
}

/// Is the walk done, or at the user-space registers, where the kernel has no address and may not be
/// called again?
pub(crate) fn is_last(state: &State) -> bool {
    let is_user = |ip: u64| ip >> 63 == 0;
    match state {
        State::Orc(s) => state.is_done() || is_user(s.ip),
        State::Fp(s) => state.is_done() || is_user(s.ip),
        State::Guess(_) => state.is_done(),
    }
}
