//! Delta-encodes branch records against the thread's previous sample: the records of calls that
//! have not returned are unchanged.

use crate::trace::error::{Bad, WriteError};
use crate::trace::layout::{BRANCH_STACKS_MAX, BRANCHES_MAX};
use crate::trace::varint::{Cursor, put, put_difference};
use unwind_sim_unwind::lbr::{Branch, BranchStack};

/// Bytes per record counted towards `CHUNK_DECODED_BYTES_MAX`.
const BRANCH_BYTES: u64 = size_of::<Branch>() as u64;

/// Bytes that `stacks` count towards `CHUNK_DECODED_BYTES_MAX`.
pub(super) fn weight(stacks: &[BranchStack]) -> u64 {
    let records = stacks.iter().map(|s| s.entries.len() as u64);
    records.sum::<u64>() * BRANCH_BYTES
}

/// Rejects rings that the format cannot hold.
pub(super) fn check(stacks: &[BranchStack]) -> Result<(), WriteError> {
    let what = "rings of branch records of a sample";
    WriteError::check(what, stacks.len(), BRANCH_STACKS_MAX)?;
    let records = stacks.iter().map(|s| s.entries.len()).sum();
    WriteError::check("branch records of a sample", records, BRANCHES_MAX)
}

/// Encodes the rings against `before`, the thread's previous ones, and updates `before`.
pub(super) fn put_branches(
    stacks: &[BranchStack],
    before: &mut Vec<Vec<Branch>>,
    out: &mut Vec<u8>,
) {
    put(out, stacks.len() as u64);

    for (i, stack) in stacks.iter().enumerate() {
        put(out, u64::from(stack.depth));
        // 0 is a place in the ring, too, so a flag says whether there is one.
        put(out, u64::from(stack.hw_index.is_some()));
        if let Some(index) = stack.hw_index {
            put(out, index);
        }

        // A ring is compared with that at the same place in the thread's last sample.
        if before.len() <= i {
            before.push(Vec::new());
        }

        // Newest first: the oldest records, at the end, are those of the sample before.
        let (entries, before) = (&stack.entries, &mut before[i]);
        let pairs = entries.iter().rev().zip(before.iter().rev());
        let shared = pairs.take_while(|(a, b)| a == b).count();
        let new = entries.len() - shared;
        put(out, new as u64);
        put(out, shared as u64);

        let mut last = 0;
        for branch in &entries[..new] {
            put_difference(out, branch.from, last);
            put_difference(out, branch.to, branch.from);
            last = branch.from;
        }

        // `before` becomes this ring, for the thread's next sample.
        let gone = before.len() - shared;
        before.splice(..gone, entries[..new].iter().copied());
    }
}

/// Decodes the rings; the counterpart of [`put_branches`].
pub(super) fn read(
    before: &mut Vec<Vec<Branch>>,
    records: &mut Cursor<'_>,
) -> Result<Vec<BranchStack>, Bad> {
    let mut total = 0;
    let count = records.count(
        BRANCH_STACKS_MAX,
        "more rings of branch records than allowed",
    )?;

    let mut stacks = Vec::with_capacity(count);
    for i in 0..count {
        let depth = records.u32()?;
        let hw_index = match records.u64()? {
            0 => None,
            1 => Some(records.u64()?),
            _ => return Err(records.bad("branch records with unknown bits")),
        };

        if before.len() <= i {
            before.push(Vec::new());
        }
        let before = &mut before[i];

        // All rings of a sample share the limit.
        let room = BRANCHES_MAX - total;
        let new = records.count(room, "more branch records than allowed")?;
        let what = "more branch records shared with the previous sample than it has";
        let shared = records.count(before.len().min(room - new), what)?;

        // A record takes at least two bytes, so the count is not believed beyond what is left.
        let mut entries = Vec::with_capacity(new.min(records.left()));
        let mut last = 0;
        for _ in 0..new {
            last = records.difference(last)?;
            let to = records.difference(last)?;
            entries.push(Branch { from: last, to });
        }

        let gone = before.len() - shared;
        before.splice(..gone, entries);
        // Shared records count, too: a few bytes can repeat a whole ring.
        total += before.len();
        stacks.push(BranchStack {
            depth,
            hw_index,
            entries: before.clone(),
        });
    }

    Ok(stacks)
}

#[cfg(test)]
mod tests;
