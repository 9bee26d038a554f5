//! What gdb needs to read symbols and tables by itself: the program's file, its auxiliary vector, and
//! where a recorded program was mapped.

use super::target::GdbTarget;
use crate::error::Error;
use gdbstub::common::Pid;
use gdbstub::target::TargetResult;
use gdbstub::target::ext::auxv::Auxv;
use gdbstub::target::ext::exec_file::ExecFile;
use gdbstub::target::ext::section_offsets::{Offsets, SectionOffsets};

/// Copies the part of `all` from `offset` on, at most `length` bytes, to the start of `to`. Returns
/// the number of bytes.
pub(super) fn part(all: &[u8], offset: u64, length: usize, to: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|at| all.get(at..));
    let rest = rest.unwrap_or_default();
    let len = rest.len().min(length).min(to.len());
    to[..len].copy_from_slice(&rest[..len]);
    len
}

impl ExecFile for GdbTarget<'_> {
    fn get_exec_file(
        &self,
        _: Option<Pid>,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let file = self.main_file.as_ref();
        let path = file.map(|file| file.path.as_os_str().as_encoded_bytes());
        Ok(part(path.unwrap_or_default(), offset, length, buf))
    }
}

impl Auxv for GdbTarget<'_> {
    fn get_auxv(&self, offset: u64, length: usize, buf: &mut [u8]) -> TargetResult<usize, Self> {
        let auxv = self.debuggee.auxv().unwrap_or_default();
        Ok(part(&auxv, offset, length, buf))
    }
}

impl SectionOffsets for GdbTarget<'_> {
    fn get_section_offsets(&mut self) -> Result<Offsets<u64>, Error> {
        let bias = self.main_file.as_ref().and_then(|file| file.bias);
        Ok(Offsets::Segments {
            text_seg: bias.unwrap_or(0),
            data_seg: None,
        })
    }
}
