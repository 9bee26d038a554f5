//! The shadow stack's view of the memory it is kept beside.

use super::AddressSpace;
use unwind_sim_unwind::memory::Memory as _;
use unwind_sim_unwind::truth::World;

impl World for &AddressSpace {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.read_u64(address).ok()
    }

    fn is_code(&mut self, address: u64) -> bool {
        self.fetch(address, &mut [0]).is_ok()
    }

    fn is_generated(&mut self, address: u64) -> bool {
        // An object may be a file that another process has written.
        let area = self.area(address).map(|(_, area)| area);
        area.is_some_and(|area| !area.is_file() && area.object().is_none()) && self.is_code(address)
    }

    fn same_mapping(&mut self, a: u64, b: u64) -> bool {
        self.area(a).is_some_and(|(range, _)| range.contains(&b))
    }
}
