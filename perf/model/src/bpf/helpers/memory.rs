//! Helpers that read memory outside the program, and the name of the current thread.

use super::{AllowedCaller, Row, size_argument};
use crate::bpf::env::Space;
use crate::bpf::errno::Errno;
use crate::bpf::fault::FaultKind;
use crate::bpf::vm::Vm;

pub(super) const HELPERS: &[Row] = &[
    (4, AllowedCaller::Gpl, |vm| probe_read(vm, Space::Any)),
    (16, AllowedCaller::All, current_comm),
    (45, AllowedCaller::Gpl, |vm| probe_read_str(vm, Space::Any)),
    (112, AllowedCaller::Gpl, |vm| probe_read(vm, Space::User)),
    (113, AllowedCaller::Gpl, |vm| probe_read(vm, Space::Kernel)),
    (114, AllowedCaller::Gpl, |vm| {
        probe_read_str(vm, Space::User)
    }),
    (115, AllowedCaller::Gpl, |vm| {
        probe_read_str(vm, Space::Kernel)
    }),
];

/// `get_current_comm(buf, size)`.
fn current_comm(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    let (to, size) = (vm.reg(1)?, size_argument(vm, "get_current_comm", 2)?);
    vm.check_writable(to, size)?;
    let comm = vm.env.task().comm;
    let mut bytes = vec![0; size];
    // `strscpy_pad`: the last byte is always zero.
    let length = comm
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(comm.len());
    let length = length.min(size.saturating_sub(1));
    bytes[..length].copy_from_slice(&comm[..length]);
    vm.write(to, &bytes)?;
    Ok(0)
}

/// `probe_read(dst, size, address)`: zeros if it cannot all be read.
fn probe_read(vm: &mut Vm<'_>, space: Space) -> Result<u64, FaultKind> {
    let (to, size, from) = (vm.reg(1)?, size_argument(vm, "probe_read", 2)?, vm.reg(3)?);
    vm.check_writable(to, size)?;
    let mut bytes = vec![0; size];
    let is_read = read(vm, space, from, &mut bytes);
    if !is_read {
        bytes.fill(0);
    }
    vm.write(to, &bytes)?;
    Ok(if is_read {
        0
    } else {
        Errno::Efault.as_result()
    })
}

/// `probe_read_str(dst, size, address)`: the length with its NUL.
fn probe_read_str(vm: &mut Vm<'_>, space: Space) -> Result<u64, FaultKind> {
    let (to, size, from) = (
        vm.reg(1)?,
        size_argument(vm, "probe_read_str", 2)?,
        vm.reg(3)?,
    );

    // Checked before anything is read: the verifier refuses the call, whatever is at the address.
    vm.check_writable(to, size)?;

    let mut text = Vec::new();

    // Byte by byte, because the text may end right before memory that cannot be read.
    while text.len() < size {
        let mut byte = [0];
        let address = from.wrapping_add(text.len() as u64);
        if !read(vm, space, address, &mut byte) {
            // A failed read clears the buffer (`bpf_probe_read_kernel_str_common`).
            vm.write(to, &vec![0; size])?;
            return Ok(Errno::Efault.as_result());
        }
        text.push(byte[0]);
        if byte[0] == 0 {
            break;
        }
    }

    // Text that is too long is cut, and still ends with a NUL.
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    vm.write(to, &text)?;
    Ok(text.len() as u64)
}

/// Memory of the program itself can be read by these helpers as well: it is the kernel's.
fn read(vm: &mut Vm<'_>, space: Space, from: u64, into: &mut [u8]) -> bool {
    if space != Space::User
        && let Ok(bytes) = vm.read(from, into.len())
    {
        into.copy_from_slice(&bytes);
        return true;
    }
    vm.env.read(space, from, into)
}
