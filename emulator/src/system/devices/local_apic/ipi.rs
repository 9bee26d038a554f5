//! The interrupt command register: interrupts that the processor sends to itself.

use super::{LocalApic, SEND_ILLEGAL_VECTOR, VECTOR_MIN};

const LOGICAL: u64 = 1 << 11;
const LEVEL_TRIGGERED: u64 = 1 << 15;
const FIXED: u64 = 0;
const LOWEST_PRIORITY: u64 = 1;
const NMI: u64 = 4;
const SHORTHAND_NONE: u64 = 0;
const SHORTHAND_OTHERS: u64 = 3;

impl LocalApic {
    /// Writes the command register and sends its interrupt.
    pub(super) fn send(&mut self, command: u64) {
        self.command = command;
        let vector = command as u8;
        let mode = (command >> 8) & 7;
        let fixed = matches!(mode, FIXED | LOWEST_PRIORITY);

        if fixed && vector < VECTOR_MIN {
            self.error(SEND_ILLEGAL_VECTOR);
            return;
        }

        let to_self = match (command >> 18) & 3 {
            SHORTHAND_NONE => self.is_addressed(command),
            SHORTHAND_OTHERS => false,
            _ => true,
        };
        if to_self && fixed {
            self.accept(vector, command & LEVEL_TRIGGERED != 0);
        } else if to_self && mode == NMI {
            self.nmi = true;
        }
    }

    /// SELF IPI of x2APIC mode.
    pub(super) fn send_self(&mut self, vector: u8) {
        if vector < VECTOR_MIN {
            self.error(SEND_ILLEGAL_VECTOR);
        } else {
            self.accept(vector, false);
        }
    }

    /// Whether the destination is this processor, the APIC of which has the ID 0.
    fn is_addressed(&self, command: u64) -> bool {
        let logical = command & LOGICAL != 0;

        if self.is_x2apic() {
            let destination = (command >> 32) as u32;
            return match (destination, logical) {
                (0 | u32::MAX, false) | (u32::MAX, true) => true,
                (_, false) => false,
                // Cluster 0, member 0.
                (_, true) => destination >> 16 == 0 && destination & 1 != 0,
            };
        }

        let destination = (command >> 56) as u8;
        let own = (self.logical_destination >> 24) as u8;
        if destination == 0xff || !logical {
            return matches!(destination, 0 | 0xff);
        }
        if self.destination_format >> 28 == 0xf {
            destination & own != 0
        } else {
            (destination >> 4 == own >> 4 || destination >> 4 == 0xf)
                && destination & own & 0xf != 0
        }
    }
}
