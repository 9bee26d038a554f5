//! The code of a kernel at a stop: its image, modules, and generated code.

use super::{KernelMachine, PID};
use crate::TraceRecorder;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use unwind_sim_recordings::files::MappingRequest;
use unwind_sim_recordings::import::{
    KernelMemory, LoadedCode, VmcoreFault, VmcoreProblem, loaded_code,
};
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_recordings::trace::WriteError;

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

/// Records that the image is mapped, moved by `bias`, and returns where. `path` is its name.
pub(crate) fn map_image<W: Write>(
    recorder: &mut TraceRecorder<'_, W>,
    path: &Path,
    image: &KernelImage,
    bias: u64,
) -> Result<Range<u64>, WriteError> {
    let range = image.range.start.wrapping_add(bias)..image.range.end.wrapping_add(bias);
    let name = path.display().to_string();
    let request = request(&name, range.clone());
    recorder.map(&request, (Some(image.image.clone()), bias))?;
    Ok(range)
}

/// Records that code is mapped.
pub(crate) fn map_code<W: Write>(
    recorder: &mut TraceRecorder<'_, W>,
    code: LoadedCode,
) -> Result<(), WriteError> {
    recorder.map(&request(&code.name, code.range), (code.image, 0))
}

fn request(name: &str, range: Range<u64>) -> MappingRequest<'_> {
    MappingRequest {
        pid: PID,
        name,
        range,
        file_offset: 0,
        executable: true,
        build_id: &[],
    }
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
