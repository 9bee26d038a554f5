//! Helpers that write to ring buffers.

use super::{AllowedCaller, Row, map_argument, map_of, size_argument};
use crate::bpf::errno::Errno;
use crate::bpf::fault::FaultKind;
use crate::bpf::maps::{Ring, Storage, VALUE_SIZE_MAX};
use crate::bpf::vm::Vm;
use crate::bpf::vm::address::{Region, decode, encode};
use crate::bpf::vm::{HeldMemory, Owner};

pub(super) const HELPERS: &[Row] = &[
    (130, AllowedCaller::All, output),
    (131, AllowedCaller::All, reserve),
    (132, AllowedCaller::All, |vm| release(vm, true)),
    (133, AllowedCaller::All, |vm| release(vm, false)),
    (134, AllowedCaller::All, query),
];

/// `BPF_RB_NO_WAKEUP` and `BPF_RB_FORCE_WAKEUP`: whether the reader is woken, which has no effect
/// here.
const WAKEUPS: u64 = 3;

fn ring<'v>(vm: &'v mut Vm<'_>, map: u32, helper: &'static str) -> Result<&'v mut Ring, FaultKind> {
    let found = map_of(vm, map, helper)?;
    let kind = found.def.kind;
    match &mut found.storage {
        Storage::Ring(ring) => Ok(ring),
        _ => Err(FaultKind::MapKind { helper, kind }),
    }
}

/// `ringbuf_output(map, data, size, flags)`.
fn output(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "ringbuf_output";
    let map = map_argument(vm, NAME, 1)?;
    let size = size_argument(vm, NAME, 3)?;
    let data = vm.read(vm.reg(2)?, size)?;
    let flags = vm.reg(4)?;
    let ring = ring(vm, map, NAME)?;
    if flags & !WAKEUPS != 0 {
        return Ok(Errno::Einval.as_result());
    }
    Ok(match ring.reserve(size as u64) {
        Some(number) => {
            ring.commit(number, Some(data));
            0
        }
        None => Errno::Eagain.as_result(),
    })
}

/// `ringbuf_reserve(map, size, flags)`.
fn reserve(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "ringbuf_reserve";
    let map = map_argument(vm, NAME, 1)?;
    let size = size_argument(vm, NAME, 2)?;
    if size > VALUE_SIZE_MAX as usize {
        // Pointers cannot address all of it.
        return Err(FaultKind::Argument {
            helper: NAME,
            argument: 2,
        });
    }

    let flags = vm.reg(3)?;
    let ring = ring(vm, map, NAME)?;
    if flags != 0 {
        return Ok(0);
    }
    // The program gets a null pointer, and has to check for it.
    let Some(number) = ring.reserve(size as u64) else {
        return Ok(0);
    };

    let slot = vm.held.len() as u32;
    vm.held.push(HeldMemory {
        // The kernel leaves the old bytes there.
        bytes: vec![0; size],
        owner: Owner::Ring { map, number },
    });
    Ok(encode(Region::Record(slot), 0))
}

/// `ringbuf_submit(data, flags)` and `ringbuf_discard(data, flags)`.
fn release(vm: &mut Vm<'_>, submit: bool) -> Result<u64, FaultKind> {
    let helper = if submit {
        "ringbuf_submit"
    } else {
        "ringbuf_discard"
    };
    let wrong = FaultKind::Argument {
        helper,
        argument: 1,
    };
    let Some((Region::Record(slot), 0)) = decode(vm.reg(1)?) else {
        return Err(wrong);
    };
    vm.reg(2)?;
    let held = vm.held.get_mut(slot as usize).ok_or(wrong)?;
    let Owner::Ring { map, number } = held.owner else {
        return Err(wrong);
    };
    held.owner = Owner::Nobody;
    let bytes = std::mem::take(&mut held.bytes);
    ring(vm, map, helper)?.commit(number, submit.then_some(bytes));
    Ok(0)
}

/// `ringbuf_query(map, flags)`.
fn query(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "ringbuf_query";
    let map = map_argument(vm, NAME, 1)?;
    let what = vm.reg(2)?;
    Ok(ring(vm, map, NAME)?.query(what))
}
