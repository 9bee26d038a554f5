//! Single instructions given by their bytes: for comparing the machine with another one.

use crate::lower::lower;
use crate::machine::{Exit, Machine};
use crate::op::{Flow, Op};
use crate::processor::Processor;
use crate::stop::Stop;
use iced_x86::{Decoder, FlowControl, Instruction};

/// Length of the longest instruction, bytes.
const LENGTH_MAX: usize = 15;

/// A decoded instruction. Its allocation is reused for the next one.
#[derive(Clone, Debug, Default)]
pub struct Single {
    ops: Vec<Op>,
    len: u64,
    /// The bytes that it was decoded from, if they mean the same at any address.
    bytes: Option<[u8; LENGTH_MAX]>,
}

impl Single {
    /// Decodes the first instruction of `bytes`, at address `rip`, for `processor`. A value must
    /// always be used with the same processor.
    pub fn decode(&mut self, bytes: &[u8; LENGTH_MAX], rip: u64, processor: &Processor) {
        if self.bytes.as_ref() == Some(bytes) {
            return;
        }
        let mut insn = Instruction::default();
        Decoder::with_ip(64, bytes, rip, processor.decoder_options()).decode_out(&mut insn);
        let here = insn.is_ip_rel_memory_operand() || insn.flow_control() != FlowControl::Next;
        self.bytes = (!here).then_some(*bytes);
        self.ops.clear();
        self.len = lower(&insn, bytes, rip, processor, &mut self.ops);
    }
}

impl Machine {
    /// Executes an instruction as if it were at rip, which must be the address it was decoded for.
    /// Nothing is fetched from memory, no decoded code is used or kept, nothing is counted. A store
    /// to decoded code is not allowed: [`Exit::Unsupported`].
    pub fn execute(&mut self, single: &Single) -> Exit {
        let core = &mut self.core;
        let rip = core.state.rip;
        let next = rip.wrapping_add(single.len);

        for op in &single.ops {
            match (op.run)(core, op) {
                Flow::Next => {}
                // The operation has set rip already.
                Flow::Jump => return Exit::Limit,
                Flow::Stop => {
                    // A trap is reported behind the instruction, a fault at it.
                    let (rip, exit) = match core.take_stop() {
                        Stop::None
                        | Stop::Unsupported
                        | Stop::Apart
                        | Stop::Code(_)
                        | Stop::Device => (rip, Exit::Unsupported),
                        Stop::System => (rip, Exit::System),
                        Stop::Exception(exception) => {
                            if exception.is_trap() {
                                (next, Exit::Exception(exception))
                            } else {
                                (rip, Exit::Exception(exception))
                            }
                        }
                        Stop::Kernel(call) => (next, Exit::Kernel(call)),
                        Stop::Halt => (next, Exit::Halt),
                        Stop::Trap => (next, Exit::Limit),
                        Stop::Again => (rip, Exit::Limit),
                    };

                    core.state.rip = rip;
                    return exit;
                }
            }
        }

        core.state.rip = next;
        Exit::Limit
    }
}
