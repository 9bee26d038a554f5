//! Helpers for maps.

use super::{AllowedCaller, Row, context_argument, map_argument, map_of, status};
use crate::bpf::fault::FaultKind;
use crate::bpf::maps::Storage;
use crate::bpf::maps::kind::is_per_cpu;
use crate::bpf::vm::Vm;
use crate::bpf::vm::address::{Region, encode};

pub(super) const HELPERS: &[Row] = &[
    (1, AllowedCaller::All, lookup),
    (2, AllowedCaller::All, update),
    (3, AllowedCaller::All, delete),
    (195, AllowedCaller::All, lookup_percpu),
];

/// A map with values, and the key that argument 2 points to.
fn map_and_key(vm: &mut Vm<'_>, helper: &'static str) -> Result<(u32, Vec<u8>), FaultKind> {
    let map = map_argument(vm, helper, 1)?;
    let found = map_of(vm, map, helper)?;
    let (kind, key_size) = (found.def.kind, found.def.key_size as usize);
    if !matches!(found.storage, Storage::Array(_) | Storage::Hash(_)) {
        return Err(FaultKind::MapKind { helper, kind });
    }
    let key = vm.read(vm.reg(2)?, key_size)?;
    Ok((map, key))
}

fn lookup(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "map_lookup_elem";
    let outer = map_argument(vm, NAME, 1)?;
    let found = map_of(vm, outer, NAME)?;
    if let Storage::Maps(_) = found.storage {
        let size = found.def.key_size as usize;
        let key = vm.read(vm.reg(2)?, size)?;
        let inner = match &map_of(vm, outer, NAME)?.storage {
            Storage::Maps(slots) => slots.get(&key).copied(),
            _ => None,
        };
        return Ok(inner.map_or(0, |inner| encode(Region::Map(inner as u32), 0)));
    }
    let (map, key) = map_and_key(vm, NAME)?;
    let cpu = vm.env.cpu();
    let slot = map_of(vm, map, NAME)?.lookup(&key, cpu);
    Ok(slot.map_or(0, |slot| encode(Region::Value { map, slot }, 0)))
}

/// `map_lookup_percpu_elem(map, key, cpu)`.
fn lookup_percpu(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "map_lookup_percpu_elem";
    let (map, key) = map_and_key(vm, NAME)?;
    let cpu = vm.reg(3)? as u32;
    let found = map_of(vm, map, NAME)?;
    let kind = found.def.kind;
    if !is_per_cpu(kind) {
        return Err(FaultKind::MapKind { helper: NAME, kind });
    }
    let slot = found.lookup(&key, cpu);
    Ok(slot.map_or(0, |slot| encode(Region::Value { map, slot }, 0)))
}

fn update(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "map_update_elem";
    let (map, key) = map_and_key(vm, NAME)?;
    let found = map_of(vm, map, NAME)?;
    if found.is_read_only() {
        return Err(FaultKind::ReadOnly(Region::Map(map)));
    }
    let size = found.def.value_size as usize;
    let value = vm.read(vm.reg(3)?, size)?;
    let flags = vm.reg(4)?;
    let cpu = vm.env.cpu();
    Ok(status(
        map_of(vm, map, NAME)?.update(&key, &value, flags, cpu),
    ))
}

fn delete(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "map_delete_elem";
    let (map, key) = map_and_key(vm, NAME)?;
    Ok(status(map_of(vm, map, NAME)?.delete(&key)))
}

/// The program in the slot that argument 3 of `tail_call` names; `None` if the slot is empty or
/// does not exist.
pub(crate) fn tail_call_target(vm: &mut Vm<'_>) -> Result<Option<usize>, FaultKind> {
    const NAME: &str = "tail_call";
    context_argument(vm, NAME)?;
    let map = map_argument(vm, NAME, 2)?;
    let index = vm.reg(3)? as u32 as usize;
    let found = map_of(vm, map, NAME)?;
    match &found.storage {
        Storage::Programs(slots) => Ok(slots.get(index).copied().flatten()),
        _ => {
            let kind = found.def.kind;
            Err(FaultKind::MapKind { helper: NAME, kind })
        }
    }
}
