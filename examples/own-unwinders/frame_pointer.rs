//! A custom unwinder in Rust: follows frame pointers by hand, and is checked on a folder of
//! recordings.
//!
//! ```sh
//! cargo run --example frame_pointer corpus/traces
//! ```

use std::process::ExitCode;
use unwind_sim_judge::check_dir;
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::chain::{Chain, FoundBy, Frame};
use unwind_sim_unwind::reason::Reason;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::unwinder::{Stack, Unwinder};

/// `push rbp; mov rbp, rsp`: the caller's rbp at `rbp`, the return address above it.
pub struct ByHand;

impl Unwinder for ByHand {
    fn name(&self) -> &str {
        "by-hand"
    }

    fn walk(&self, stack: &Stack<'_>, _: &mut Cache) -> Chain {
        let mut chain = Chain::default();
        let regs = &stack.start.regs;

        let mut push = |pc, sp, slot| {
            chain.frames.push(Frame {
                pc,
                sp,
                slot,
                found: FoundBy::External,
            });
            chain.frames.len() < stack.limits.frames_max as usize
        };

        // With a mark, the first frames are the tracer's, and the walk only starts there.
        if stack.start.first_frame.is_none() {
            push(CodeAddress::Instruction(regs.rip()), regs.rsp(), None);
        }

        let (mut rbp, mut floor) = (regs.get_or_zero(Reg::Rbp), regs.rsp());

        chain.end = loop {
            // The psABI (3.4.1) leaves rbp unspecified at the entry; start code sets it to 0.
            if rbp == 0 {
                break Reason::RootReached.into();
            }
            let slot = rbp.wrapping_add(8);

            let words = (stack.memory.read_u64(rbp), stack.memory.read_u64(slot));
            let (Ok(caller), Ok(ra)) = words else {
                break Reason::NotAtRoot.into();
            };

            // A call's last byte stands before its return address, which itself may lie behind the
            // text.
            if !stack.space.is_text(ra.wrapping_sub(1)) {
                break Reason::NotAtRoot.into();
            }

            let sp = rbp.wrapping_add(16);
            // Frames must lie above each other; anything else is data that looks like a frame.
            if rbp < floor || !push(CodeAddress::Return(ra), sp, Some(slot)) {
                break Reason::NotAtRoot.into();
            }
            (rbp, floor) = (caller, sp);
        };
        chain
    }
}

fn main() -> ExitCode {
    let folder = std::env::args().nth(1);
    let folder = folder.unwrap_or_else(|| "corpus/traces".to_owned());
    match check_dir(&folder, &ByHand) {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        Ok(report) => {
            // Expect many: most code keeps no frame pointer. Your own test would list what it
            // expects.
            print!("{report}");
            ExitCode::from(u8::from(!report.is_ok()))
        }
    }
}
