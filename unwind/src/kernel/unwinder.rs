//! The kernel's unwinders behind the common interface. Their chain is the one that perf would
//! record.

use super::perf::{Visit, addresses, callchain};
use super::{
    Code, EntryRegs, FoundRow, Kernel, RegsPtr, Source, State, Task, Unwind, UnwinderKind, Version,
};
use crate::address::{CodeAddress, Lookup};
use crate::cache::Cache;
use crate::chain::{Addresses, Chain, End, How, RowRef, Sink as _, Step};
use crate::event::Event;
use crate::memory::Memory;
use crate::orc::Encoding;
use crate::reason::Reason;
use crate::row::{Row, RowSource, TableKind};
use crate::rule::Rule;
use crate::unwinder::{Stack, Unwinder};
use alloc::string::String;

/// One of the kernel's unwinders, in a particular version.
#[derive(Clone, Debug)]
pub struct KernelUnwinder {
    kind: UnwinderKind,
    version: Option<Version>,
    encoding: Option<Encoding>,
    name: String,
}

impl KernelUnwinder {
    /// Behaves like `version`, otherwise like the recorded kernel's version if known, otherwise
    /// like [`Version::DEFAULT`]. Reads tables in `encoding`, otherwise in the detected encoding.
    pub fn new(
        kind: UnwinderKind,
        version: Option<Version>,
        encoding: Option<Encoding>,
    ) -> KernelUnwinder {
        let kernel = version.map_or("kernel".into(), |v| alloc::format!("kernel-{v}"));
        KernelUnwinder {
            kind,
            version,
            encoding,
            name: alloc::format!("{}:{kernel}", kind.as_str()),
        }
    }

    /// The version passed to [`KernelUnwinder::new`].
    pub const fn version(&self) -> Option<Version> {
        self.version
    }

    /// The kind of unwinder.
    pub const fn kind(&self) -> UnwinderKind {
        self.kind
    }

    /// Whether the end of a walk says that it is a root.
    fn marks_roots(&self) -> bool {
        self.kind != UnwinderKind::Guess
    }

    /// The code of `stack`'s kernel, made once per address space.
    pub fn code(&self, stack: &Stack<'_>, cache: &mut Cache) -> alloc::sync::Arc<Code> {
        cache.of_space(stack.space, || {
            let recorded = stack.task.and_then(|t| t.version);
            let version = self.version.or(recorded).unwrap_or(Version::DEFAULT);
            let encoding = self.encoding.or(stack.task.and_then(|t| t.encoding));
            Code::new(stack.space, version, encoding)
        })
    }
}

impl Unwinder for KernelUnwinder {
    fn name(&self) -> &str {
        &self.name
    }

    fn walk(&self, stack: &Stack<'_>, cache: &mut Cache) -> Chain {
        let code = self.code(stack, cache);
        let mut chain = Chain::default();
        chain.events.push(Event::Started {
            regs: stack.start.regs,
            first_frame: stack.start.first_frame,
        });

        let alone;
        let task = match stack.task {
            Some(task) => task,
            None => {
                // Without a recorded task: one with the stack that contains sp.
                alone = alone_on(stack);
                &alone
            }
        };

        let kernel = Kernel {
            code: &code,
            task,
            memory: stack.memory,
        };

        // What earlier walks have looked up in the tables.
        let mut finds = cache.take_finds();
        let mark = stack.start.first_frame;
        let is_fake = mark.is_some();

        // With hardware registers, only the frame-pointer unwinder passes frames: those below the
        // interrupted rsp.
        let passes = mark.or_else(|| {
            let from_regs = self.kind == UnwinderKind::Fp && task.is_current;
            from_regs.then(|| stack.start.regs.rsp())
        });
        let limit = stack.limits.frames_max;

        // The address at which the previous frame was looked up.
        let mut inside = 0;

        let mut visit = |visit: Visit<'_, dyn Memory>| match visit {
            Visit::Skipped(unwind) => {
                chain.events.push(Event::State(*unwind.state()));
                let (pc, sp) = (pc(unwind), sp(unwind.state()));
                inside = pc.lookup(Lookup::InsideCall);
                if let Some(first_frame) = passes {
                    chain.events.push(Event::Skipped {
                        pc,
                        sp,
                        first_frame,
                    });
                }
            }
            Visit::Ip(ip) => {
                let (pc, sp, how) = if is_fake {
                    (CodeAddress::Return(ip), 0, How::SampledIp)
                } else {
                    let sp = stack.start.regs.rsp();
                    (CodeAddress::Instruction(ip), sp, How::Start)
                };
                let slot = None;
                chain.frame(Step { pc, sp, slot, how });
            }
            Visit::Stored(unwind, address) => {
                chain.events.push(Event::State(*unwind.state()));
                let at = pc(unwind);
                let pc = match at {
                    CodeAddress::Instruction(_) => CodeAddress::Instruction(address),
                    CodeAddress::Return(_) => CodeAddress::Return(address),
                };
                // By the address of the callee's frame: its row led to this one.
                let row = found(unwind, inside);
                let how = row.as_ref().map_or_else(
                    |&how| how,
                    |row| How::Rule {
                        row: RowRef::from(row),
                        words: &[],
                    },
                );
                chain.frame(Step {
                    pc,
                    sp: sp(unwind.state()),
                    slot: slot(unwind),
                    how,
                });
                inside = at.lookup(Lookup::InsideCall);
            }
            Visit::Last(unwind) => {
                chain.events.push(Event::State(*unwind.state()));
                chain.user_regs = unwind.user_regs();
            }
        };

        // The walk is that of perf; the chain records what it visits.
        let ended = callchain(
            self.kind,
            kernel,
            stack.start,
            limit,
            &mut finds,
            &mut visit,
        );
        cache.put_finds(finds);

        match ended {
            Ok((state, reason)) => {
                chain.refused = state.is_error();
                chain.end = reason.into();
            }
            Err(reason) => chain.end = reason.into(),
        }

        // A guess never knows whether it has reached the root.
        chain.end.marks_roots = self.marks_roots();
        chain
    }

    fn addresses(&self, stack: &Stack<'_>, cache: &mut Cache, out: &mut Addresses) -> End {
        let code = self.code(stack, cache);

        let alone;
        let task = match stack.task {
            Some(task) => task,
            None => {
                alone = alone_on(stack);
                &alone
            }
        };

        let kernel = Kernel {
            code: &code,
            task,
            memory: stack.memory,
        };

        let limit = stack.limits.frames_max;
        // What earlier walks have looked up in the tables.
        let mut finds = cache.take_finds();
        let ended = addresses(
            self.kind,
            kernel,
            stack.start,
            limit,
            &mut finds,
            &mut out.0,
        );
        cache.put_finds(finds);

        let mut end: End = ended.map_or_else(Into::into, |(_, reason)| reason.into());
        end.marks_roots = self.marks_roots();
        end
    }
}

/// A task on the one stack that contains sp according to the memory.
fn alone_on(stack: &Stack<'_>) -> Task {
    Task::of_stack(stack.memory.stack_bounds(stack.start.regs.rsp()))
}

/// The pc of the current frame; exact if it was interrupted.
fn pc<M: Memory + ?Sized>(unwind: &Unwind<'_, M>) -> CodeAddress {
    let is_exact = match unwind.state() {
        State::Orc(s) => s.signal,
        State::Fp(s) => s.regs.is_some(),
        State::Guess(_) => false,
    };
    if is_exact {
        CodeAddress::Instruction(unwind.ip())
    } else {
        CodeAddress::Return(unwind.ip())
    }
}

const fn sp(state: &State) -> u64 {
    match state {
        State::Orc(s) => s.sp,
        // The sp of the frame that the address was read from; registers do not carry it.
        State::Fp(s) => match s.regs {
            RegsPtr::None => s.bp.wrapping_add(16),
            RegsPtr::Start | RegsPtr::At(_) => 0,
        },
        State::Guess(s) => s.sp.wrapping_add(8),
    }
}

fn slot<M: Memory + ?Sized>(unwind: &Unwind<'_, M>) -> Option<u64> {
    match unwind.state() {
        State::Guess(s) => Some(s.sp),
        _ => unwind.return_address_ptr(),
    }
}

/// The row by which the current frame was found, if its callee was looked up at `inside`, or how
/// else it was found.
fn found<M: Memory + ?Sized>(unwind: &Unwind<'_, M>, inside: u64) -> Result<Row, How<'static>> {
    let none = RowSource {
        table: TableKind::FramePointer,
        image: None,
        unit_offset: 0,
        row_offset: 0,
        start: 0,
        end: u64::MAX,
        fallback: None,
    };

    // What led here was looked up for the callee.
    let (rule, source) = match (unwind.state(), unwind.found()) {
        (State::Guess(_), _) => return Err(How::Guess),
        (State::Fp(_), _) => match EntryRegs::of(unwind.state()) {
            // Found by an encoded pointer to saved registers, not by a rule.
            Some(_) => return Err(How::External),
            None => (Rule::FRAME_POINTER, none),
        },
        // No rule was needed to find an inactive task.
        (State::Orc(_), None) => return Err(How::Start),
        (State::Orc(_), Some(found)) => {
            let code = unwind.kernel().code;
            let encoding = code.version().encoding();
            let Ok(rule) = found.entry.rule(encoding.sp_indirect) else {
                return Err(How::External);
            };
            let source = match found.source {
                Source::Table { image, position } => {
                    let Some(FoundRow { offset, start, end }) = code.row(image, position) else {
                        return Err(How::External);
                    };
                    let (image, bias) = code.image(image);
                    RowSource {
                        table: TableKind::Orc,
                        image,
                        unit_offset: offset,
                        row_offset: offset,
                        start: start.wrapping_sub(bias),
                        end: end.wrapping_sub(bias),
                        fallback: None,
                    }
                }
                // The kernel found no row, and guessed.
                Source::FramePointer => RowSource {
                    fallback: Some(Reason::NoRow { pc: inside }),
                    ..none
                },
                Source::Null | Source::Bpf => none,
            };
            (rule, source)
        }
    };

    Ok(Row { rule, source })
}
