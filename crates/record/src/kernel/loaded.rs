//! Modules and generated code of the machine at a stop.

use super::KernelMachine;
use std::cell::RefCell;
use std::collections::HashMap;
use unwind_sim_recordings::import::{
    KernelMemory, LoadedCode, VmcoreFault, VmcoreProblem, loaded_code,
};
use unwind_sim_recordings::kernel::KernelImage;

const PAGE: usize = 4096;
/// Maximum number of cached pages: 256 MiB, more than all modules of a kernel.
const PAGES_MAX: usize = 65_536;

/// The code loaded into the kernel besides `image`, and the parts that cannot be read. If the stub
/// is gone, the next stop will report it.
pub(crate) fn find<M: KernelMachine>(
    machine: &mut M,
    image: &KernelImage,
    bias: u64,
) -> (Vec<LoadedCode>, Vec<VmcoreProblem>) {
    let memory = Pages {
        machine: RefCell::new(machine),
        kept: RefCell::default(),
    };
    loaded_code(image, bias, &memory)
}

/// Memory, cached by page, since names are read byte by byte.
struct Pages<'a, M> {
    machine: RefCell<&'a mut M>,
    /// `None` is unreadable.
    kept: RefCell<HashMap<u64, Option<Vec<u8>>>>,
}

impl<M: KernelMachine> KernelMemory for Pages<'_, M> {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), VmcoreFault> {
        let mut kept = self.kept.borrow_mut();
        let mut done = 0;
        while done < out.len() {
            let here = address.wrapping_add(done as u64);
            let page = here / PAGE as u64;
            if kept.len() >= PAGES_MAX {
                kept.clear();
            }
            let bytes = kept.entry(page).or_insert_with(|| {
                let at = page.wrapping_mul(PAGE as u64);
                let bytes = self.machine.borrow_mut().read(at, PAGE).ok();
                bytes.filter(|bytes| bytes.len() == PAGE)
            });
            let bytes = bytes.as_ref();
            let bytes = bytes.ok_or(VmcoreFault::Refused { address: here })?;
            let start = here as usize % PAGE;
            let len = (PAGE - start).min(out.len() - done);
            out[done..done + len].copy_from_slice(&bytes[start..start + len]);
            done += len;
        }
        Ok(())
    }
}
