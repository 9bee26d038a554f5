//! `get_stackid` and `get_stack`.
//!
//! A handler of an event with `PERF_SAMPLE_CALLCHAIN` gets that chain's words, including context
//! markers. Everything before `PERF_CONTEXT_USER` counts as the kernel's, so that the cookie of a
//! deferred chain is mistaken for a kernel frame and there is no user part. In all other cases the
//! stack is walked at once. Source: `kernel/bpf/stackmap.c`, Linux 6.18.

use super::{AllowedCaller, Row, context_argument, map_argument, map_of, size_argument};
use crate::bpf::context::Context;
use crate::bpf::env::SampleChain;
use crate::bpf::errno::Errno;
use crate::bpf::fault::FaultKind;
use crate::bpf::maps::Storage;
use crate::bpf::stackmap::{
    BUILD_ID_ENTRY_SIZE, FAST_STACK_CMP, REUSE_STACKID, SKIP_MASK, USER_BUILD_ID, USER_STACK,
    build_id_entry, max_depth,
};
use crate::bpf::vm::Vm;
use unwind_sim_perf_data::callchain::PERF_CONTEXT_USER;

pub(super) const HELPERS: &[Row] = &[
    (27, AllowedCaller::Gpl, get_stackid),
    (67, AllowedCaller::Gpl, get_stack),
];

/// A chain from which a helper takes frames, and the flags with the number to skip.
struct Trace {
    words: Vec<u64>,
    flags: u64,
}

/// The stack that the flags request.
fn trace(vm: &mut Vm<'_>, flags: u64, depth: u32) -> Result<Trace, Errno> {
    let user = flags & USER_STACK != 0;
    // Other types of programs have no sample.
    let chain = match vm.context {
        Context::PerfEvent(_) => vm.env.sample_chain(),
        Context::Bytes(_) => SampleChain::NotSampled,
    };

    let mut words = match chain {
        SampleChain::NotSampled => {
            let mut words = vm.env.stack(user, depth).ok_or(Errno::Efault)?;
            words.truncate(depth as usize);
            return Ok(Trace { words, flags });
        }
        SampleChain::Missing => return Err(Errno::Efault),
        SampleChain::Words(words) => words,
    };

    // The sampled chain has the kernel part first.
    let kernel = words
        .iter()
        .position(|word| *word == PERF_CONTEXT_USER)
        .unwrap_or(words.len());
    if !user {
        words.truncate(kernel);
        return Ok(Trace { words, flags });
    }

    // User frames are reached by skipping the kernel's; the sum must fit the field
    // (`bpf_get_stackid_pe` in `kernel/bpf/stackmap.c`).
    let skip = (flags & SKIP_MASK) + kernel as u64;
    if skip > SKIP_MASK {
        return Err(Errno::Efault);
    }

    let flags = flags & !SKIP_MASK | skip;
    Ok(Trace { words, flags })
}

/// `get_stackid(ctx, map, flags)`.
fn get_stackid(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "get_stackid";
    const FLAGS: u64 = SKIP_MASK | USER_STACK | FAST_STACK_CMP | REUSE_STACKID;

    context_argument(vm, NAME)?;
    let map = map_argument(vm, NAME, 2)?;
    let flags = vm.reg(3)?;

    let max_stack = vm.env.max_stack();
    let found = map_of(vm, map, NAME)?;
    let Storage::Stacks(stacks) = &found.storage else {
        let kind = found.def.kind;
        return Err(FaultKind::MapKind { helper: NAME, kind });
    };

    // The map's type is the verifier's business, the flags are the helper's own.
    if flags & !FLAGS != 0 {
        return Ok(Errno::Einval.as_result());
    }

    let depth = stacks.max_depth(flags, max_stack);
    let trace = trace(vm, flags, depth);

    // Looked up again: taking the stack needs the whole machine.
    let found = vm
        .maps
        .get_mut(map as usize)
        .map(|found| &mut found.storage);
    let Some(Storage::Stacks(stacks)) = found else {
        return Ok(Errno::Efault.as_result());
    };

    // A stack that could not be taken is counted by the map, too.
    let id = match trace {
        Ok(trace) => stacks.id_of(&trace.words, trace.flags, vm.env),
        Err(error) => {
            stacks.count_failed();
            Err(error)
        }
    };
    Ok(id.map_or_else(Errno::as_result, u64::from))
}

/// `get_stack(ctx, buf, size, flags)`.
fn get_stack(vm: &mut Vm<'_>) -> Result<u64, FaultKind> {
    const NAME: &str = "get_stack";
    context_argument(vm, NAME)?;
    let (to, size) = (vm.reg(2)?, size_argument(vm, NAME, 3)?);
    let flags = vm.reg(4)?;
    vm.check_writable(to, size)?;
    let found = frames(vm, size as u32, flags);
    let mut bytes = vec![0; size];
    if let Ok(found) = &found {
        bytes[..found.len()].copy_from_slice(found);
    }
    vm.write(to, &bytes)?;
    Ok(found.map_or_else(Errno::as_result, |found| found.len() as u64))
}

/// What `get_stack` writes, at most `size` bytes.
fn frames(vm: &mut Vm<'_>, size: u32, flags: u64) -> Result<Vec<u8>, Errno> {
    if flags & !(SKIP_MASK | USER_STACK | USER_BUILD_ID) != 0 {
        return Err(Errno::Einval);
    }

    let (user, by_id) = (flags & USER_STACK != 0, flags & USER_BUILD_ID != 0);
    let entry = if by_id { BUILD_ID_ENTRY_SIZE } else { 8 };
    // Build ids are for user addresses only (`__bpf_get_stack`).
    if (by_id && !user) || !size.is_multiple_of(entry) {
        return Err(Errno::Einval);
    }

    let max_stack = vm.env.max_stack();
    let trace = trace(vm, flags, max_depth(size, entry, flags, max_stack))?;
    // The number to skip may have grown by the kernel's part of the chain.
    let depth = max_depth(size, entry, trace.flags, max_stack) as usize;

    let skip = (trace.flags & SKIP_MASK) as usize;
    let end = trace.words.len().min(depth);
    let frames = trace.words.get(skip..end).ok_or(Errno::Efault)?;

    Ok(if by_id {
        let ids = frames
            .iter()
            .map(|ip| build_id_entry(*ip, vm.env.build_id(*ip)));
        ids.flatten().collect()
    } else {
        frames.iter().flat_map(|ip| ip.to_le_bytes()).collect()
    })
}
