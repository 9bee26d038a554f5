//! The shadow stack's view of the machine it is kept beside.

use crate::core::Core;
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::truth::World;

impl World for &Core {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.memory.read_u64(address).ok()
    }

    fn is_code(&mut self, address: u64) -> bool {
        self.memory.fetch(address, &mut [0]).is_ok()
    }

    fn is_generated(&mut self, address: u64) -> bool {
        // An object may be a file that another process has written.
        let area = self.memory.area(address).map(|(_, area)| area);
        area.is_some_and(|area| !area.is_file() && area.object().is_none()) && self.is_code(address)
    }

    fn same_mapping(&mut self, a: u64, b: u64) -> bool {
        let area = self.memory.area(a);
        area.is_some_and(|(range, _)| range.contains(&b))
    }

    fn is_in_register(&mut self, value: u64) -> bool {
        (0..16).any(|number| self.state.gpr(number) == value)
    }
}
