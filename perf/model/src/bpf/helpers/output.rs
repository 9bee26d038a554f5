//! Helpers about the event: output to a ring buffer, its value, its branch records.

use super::{AllowedCaller, Row, context_argument, map_argument, map_of, size_argument, status};
use crate::bpf::errno::Errno;
use crate::bpf::fault::FaultKind;
use crate::bpf::maps::Storage;
use crate::bpf::vm::Vm;

pub(super) const HELPERS: &[Row] = &[
    (25, AllowedCaller::Gpl, perf_event_output),
    (56, AllowedCaller::PerfEventGpl, prog_read_value),
    (119, AllowedCaller::PerfEventGpl, read_branch_records),
    (176, AllowedCaller::Gpl, get_branch_snapshot),
];

/// The bits of the flags that are an index, and the index that means the current processor
/// (`BPF_F_CURRENT_CPU`).
const INDEX_MASK: u64 = 0xffff_ffff;
/// `BPF_F_GET_BRANCH_RECORDS_SIZE`.
const BRANCH_RECORDS_SIZE: u64 = 1;
/// Bytes of a branch record.
const BRANCH_ENTRY_SIZE: usize = 24;

/// The contents of `PERF_SAMPLE_RAW` for the output of a program: the data, padded with zeros so
/// that the length including the 32-bit size before it is a multiple of 8.
pub fn raw_payload(data: &[u8]) -> Vec<u8> {
    let mut payload = data.to_vec();
    payload.resize((data.len() + 4).next_multiple_of(8) - 4, 0);
    payload
}

/// `perf_event_output(ctx, map, flags, data, size)`.
fn perf_event_output(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "perf_event_output";
    context_argument(vm, NAME)?;
    let map = map_argument(vm, NAME, 2)?;
    let flags = vm.reg(3)?;
    let size = size_argument(vm, NAME, 5)?;
    let data = vm.read(vm.reg(4)?, size)?;

    let cpu = vm.env.cpu();
    let found = map_of(vm, map, NAME)?;
    let Storage::PerfEvents(slots) = &found.storage else {
        let kind = found.def.kind;
        return Err(FaultKind::MapKind { helper: NAME, kind });
    };

    // `BPF_F_CURRENT_CPU` is the whole mask.
    let index = match flags & INDEX_MASK {
        INDEX_MASK => cpu,
        index => index as u32,
    };

    let slot = slots.get(index as usize).copied();
    let name = found.def.name.clone();

    // The order of the errors is that of `bpf_perf_event_output` (`kernel/trace/bpf_trace.c`).
    let result = match slot {
        _ if flags & !INDEX_MASK != 0 => Err(Errno::Einval),
        None => Err(Errno::E2big),
        Some(None) => Err(Errno::Enoent),
        Some(Some(on)) if on != cpu => Err(Errno::Eopnotsupp),
        Some(Some(_)) => vm.env.output(&name, index, &data),
    };
    Ok(status(result))
}

/// `perf_prog_read_value(ctx, buf, size)`.
fn prog_read_value(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "perf_prog_read_value";
    context_argument(vm, NAME)?;
    let (to, size) = (vm.reg(2)?, size_argument(vm, NAME, 3)?);
    vm.check_writable(to, size)?;
    let value = match size {
        24 => vm.env.event_value(),
        _ => Err(Errno::Einval),
    };
    let mut bytes = vec![0; size];
    if let Ok(value) = value {
        let words = [value.counter, value.enabled, value.running];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
    }
    vm.write(to, &bytes)?;
    Ok(status(value.map(drop)))
}

/// `read_branch_records(ctx, buf, size, flags)`.
fn read_branch_records(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "read_branch_records";
    context_argument(vm, NAME)?;
    let (to, size) = (vm.reg(2)?, size_argument(vm, NAME, 3)?);
    let flags = vm.reg(4)?;
    if to != 0 {
        vm.check_writable(to, size)?;
    }
    if flags & !BRANCH_RECORDS_SIZE != 0 {
        return Ok(Errno::Einval.as_result());
    }
    let Some(records) = vm.env.branch_records() else {
        return Ok(Errno::Enoent.as_result());
    };
    if flags & BRANCH_RECORDS_SIZE != 0 {
        return Ok(records.len() as u64);
    }
    if to == 0 || !size.is_multiple_of(BRANCH_ENTRY_SIZE) {
        return Ok(Errno::Einval.as_result());
    }
    let copied = records.len().min(size);
    vm.write(to, &records[..copied])?;
    Ok(copied as u64)
}

/// `get_branch_snapshot(buf, size, flags)`: whole entries, as many as fit; no argument names an
/// event (Linux 5.16).
fn get_branch_snapshot(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    let (to, size) = (vm.reg(1)?, size_argument(vm, "get_branch_snapshot", 2)?);
    vm.check_writable(to, size)?;
    if vm.reg(3)? != 0 {
        return Ok(Errno::Einval.as_result());
    }
    let records = vm.env.branch_snapshot();
    let copied = records.len().min(size) / BRANCH_ENTRY_SIZE * BRANCH_ENTRY_SIZE;
    if copied == 0 {
        return Ok(Errno::Enoent.as_result());
    }
    vm.write(to, &records[..copied])?;
    Ok(copied as u64)
}
