//! Helpers that call a function of the program.
//!
//! Source: `kernel/bpf/bpf_iter.c`, `kernel/bpf/{arraymap,hashtab}.c`, Linux 6.18. A callback
//! counts for the depth of calls and for the budget as any other function.

use super::{AllowedCaller, Row, map_argument, map_of};
use crate::bpf::errno::Errno;
use crate::bpf::fault::FaultKind;
use crate::bpf::maps::Storage;
use crate::bpf::vm::Vm;
use crate::bpf::vm::address::{Region, decode, encode};
use crate::bpf::vm::{HeldMemory, Owner};

pub(super) const HELPERS: &[Row] = &[
    (164, AllowedCaller::All, for_each_map_elem),
    (181, AllowedCaller::All, rounds),
];

/// The most rounds of one `loop` (`BPF_MAX_LOOPS`).
const LOOPS_MAX: u32 = 8 << 20;

/// The first instruction of the function that an argument points to.
fn function(vm: &Vm<'_>, helper: &'static str, argument: u8) -> Result<usize, FaultKind> {
    let wrong = FaultKind::Argument { helper, argument };
    match decode(vm.reg(argument)?) {
        Some((Region::Code, start)) => usize::try_from(start).map_err(|_| wrong),
        _ => Err(wrong),
    }
}

/// `loop(nr_loops, callback, ctx, flags)`: returns the number of rounds.
fn rounds(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "loop";
    let rounds = vm.reg(1)? as u32;
    let function = function(vm, NAME, 2)?;
    let context = vm.reg(3)?;
    if vm.reg(4)? != 0 {
        return Ok(Errno::Einval.as_result());
    }
    if rounds > LOOPS_MAX {
        return Ok(Errno::E2big.as_result());
    }
    for round in 0..u64::from(rounds) {
        if vm.call_function(function, &[round, context])? != 0 {
            return Ok(round + 1);
        }
    }
    Ok(u64::from(rounds))
}

/// `for_each_map_elem(map, callback, ctx, flags)`: returns the number of elements.
fn for_each_map_elem(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "for_each_map_elem";
    let map = map_argument(vm, NAME, 1)?;
    let function = function(vm, NAME, 2)?;
    let context = vm.reg(3)?;
    let flags = vm.reg(4)?;

    let cpu = vm.env.cpu();
    let found = map_of(vm, map, NAME)?;

    // All keys first, because the callback may change the map.
    let keys: Vec<Vec<u8>> = match &found.storage {
        Storage::Array(_) | Storage::Hash(_) => {
            found.dump().into_iter().map(|(key, _)| key).collect()
        }
        _ => {
            let kind = found.def.kind;
            return Err(FaultKind::MapKind { helper: NAME, kind });
        }
    };

    // The order is that of the tests: the type of the map is the verifier's, the flags are the
    // helper's.
    if flags != 0 {
        return Ok(Errno::Einval.as_result());
    }

    let mut count = 0;
    for key in keys {
        // A callback may have removed it.
        let Some(slot) = map_of(vm, map, NAME)?.lookup(&key, cpu) else {
            continue;
        };

        // The key is a copy, so that the callback can delete its own element.
        let place = vm.held.len() as u32;
        vm.held.push(HeldMemory {
            bytes: key,
            owner: Owner::Helper,
        });
        let (key, value) = (Region::Record(place), Region::Value { map, slot });
        let pointers = [
            encode(Region::Map(map), 0),
            encode(key, 0),
            encode(value, 0),
        ];
        let [map, key, value] = pointers;

        let result = vm.call_function(function, &[map, key, value, context])?;

        // The callback's pointer to the key must not be valid after its return.
        let held = &mut vm.held[place as usize];
        held.bytes = Vec::new();
        held.owner = Owner::Nobody;

        // A result other than 0 ends the loop, and the element still counts.
        count += 1;
        if result != 0 {
            break;
        }
    }

    Ok(count)
}
