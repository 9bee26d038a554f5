//! The offsets of a sample's fields, computed once for each attribute.
//!
//! A sample starts with fields of fixed size, at offsets that depend only on `sample_type`. Then
//! come fields whose size is in the record. The order is that of `perf_output_sample()`
//! (`kernel/events/core.c`, Linux 7.2).

use super::attr::{EventAttr, flag};

/// Bits of `perf_event_attr.sample_type` (`enum perf_event_sample_format`).
pub mod sample_type {
    /// Instruction pointer.
    pub const IP: u64 = 1;
    /// Process and thread ID.
    pub const TID: u64 = 1 << 1;
    /// Time in nanoseconds of the recording's clock.
    pub const TIME: u64 = 1 << 2;
    /// Data address.
    pub const ADDR: u64 = 1 << 3;
    /// Counter values.
    pub const READ: u64 = 1 << 4;
    /// Callchain.
    pub const CALLCHAIN: u64 = 1 << 5;
    /// Event ID.
    pub const ID: u64 = 1 << 6;
    /// CPU.
    pub const CPU: u64 = 1 << 7;
    /// Period.
    pub const PERIOD: u64 = 1 << 8;
    /// Stream ID.
    pub const STREAM_ID: u64 = 1 << 9;
    /// Raw data (tracepoints, BPF output).
    pub const RAW: u64 = 1 << 10;
    /// Last branch records.
    pub const BRANCH_STACK: u64 = 1 << 11;
    /// User registers.
    pub const REGS_USER: u64 = 1 << 12;
    /// Copy of the user stack.
    pub const STACK_USER: u64 = 1 << 13;
    /// Weight.
    pub const WEIGHT: u64 = 1 << 14;
    /// Source of the data.
    pub const DATA_SRC: u64 = 1 << 15;
    /// Event ID at an offset that does not depend on other fields.
    pub const IDENTIFIER: u64 = 1 << 16;
    /// Transaction flags.
    pub const TRANSACTION: u64 = 1 << 17;
    /// Registers at the interrupt.
    pub const REGS_INTR: u64 = 1 << 18;
    /// Physical address.
    pub const PHYS_ADDR: u64 = 1 << 19;
    /// Copy from the AUX area.
    pub const AUX: u64 = 1 << 20;
    /// Cgroup ID.
    pub const CGROUP: u64 = 1 << 21;
    /// Page size of the data address.
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
    /// Page size of the instruction pointer.
    pub const CODE_PAGE_SIZE: u64 = 1 << 23;
    /// Weight, as three numbers.
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
}

/// Bits of `perf_event_attr.read_format`.
pub mod read_format {
    /// Time enabled follows.
    pub const TOTAL_TIME_ENABLED: u64 = 1;
    /// Time running follows.
    pub const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    /// Each value has its event ID.
    pub const ID: u64 = 1 << 2;
    /// Values of the whole group.
    pub const GROUP: u64 = 1 << 3;
    /// Each value has its number of lost samples.
    pub const LOST: u64 = 1 << 4;
}

/// Bits of `perf_event_attr.branch_sample_type` that change the layout or its meaning.
pub mod branch_sample_type {
    /// The branch stack is a call stack: calls that have not returned.
    pub const CALL_STACK: u64 = 1 << 11;
    /// The branch stack states the hardware index at which it starts.
    pub const HW_INDEX: u64 = 1 << 17;
    /// The branch stack is followed by one word of counters for each entry.
    pub const COUNTERS: u64 = 1 << 19;
}

use sample_type as st;

/// Fixed-size fields at the start of a sample, in order; 8 bytes each.
const PREFIX: [u64; 9] = [
    st::IDENTIFIER,
    st::IP,
    st::TID,
    st::TIME,
    st::ADDR,
    st::ID,
    st::STREAM_ID,
    st::CPU,
    st::PERIOD,
];

/// The fields after the prefix, in order.
const TAIL: [u64; 16] = [
    st::READ,
    st::CALLCHAIN,
    st::RAW,
    st::BRANCH_STACK,
    st::REGS_USER,
    st::STACK_USER,
    st::WEIGHT,
    st::WEIGHT_STRUCT,
    st::DATA_SRC,
    st::TRANSACTION,
    st::REGS_INTR,
    st::PHYS_ADDR,
    st::CGROUP,
    st::DATA_PAGE_SIZE,
    st::CODE_PAGE_SIZE,
    st::AUX,
];

/// Fields of the sample id trailer, in order; 8 bytes each.
const TRAILER: [u64; 6] = [
    st::TID,
    st::TIME,
    st::ID,
    st::STREAM_ID,
    st::CPU,
    st::IDENTIFIER,
];

/// An offset beyond any record (records are below 64 KiB), so that reads find nothing.
pub(crate) const ABSENT: u16 = u16::MAX;

/// Offsets of the fixed fields in a sample's body and in the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleLayout {
    pub(crate) ip: u16,
    pub(crate) tid: u16,
    pub(crate) time: u16,
    pub(crate) addr: u16,
    pub(crate) id: u16,
    pub(crate) stream_id: u16,
    pub(crate) cpu: u16,
    pub(crate) period: u16,
    /// Size of all fixed fields, bytes.
    pub(crate) prefix: u16,
    /// This event's fields after the prefix, as bits of `sample_type`, in order.
    tail: [u64; TAIL.len()],
    tail_len: u8,
    /// Size of the trailer of records other than samples, bytes; zero without `sample_id_all`.
    pub(crate) trailer: u16,
    pub(crate) trailer_tid: u16,
    pub(crate) trailer_time: u16,
    pub(crate) trailer_id: u16,
    pub(crate) trailer_stream_id: u16,
    pub(crate) trailer_cpu: u16,
    pub(crate) regs_user: u64,
    pub(crate) regs_intr: u64,
    pub(crate) read_format: u64,
    pub(crate) branch_hw_index: bool,
    pub(crate) branch_counters: bool,
}

impl Default for SampleLayout {
    fn default() -> Self {
        // An absent field has an offset that no body reaches.
        Self {
            ip: ABSENT,
            tid: ABSENT,
            time: ABSENT,
            addr: ABSENT,
            id: ABSENT,
            stream_id: ABSENT,
            cpu: ABSENT,
            period: ABSENT,
            prefix: 0,
            tail: [0; TAIL.len()],
            tail_len: 0,
            trailer: 0,
            trailer_tid: ABSENT,
            trailer_time: ABSENT,
            trailer_id: ABSENT,
            trailer_stream_id: ABSENT,
            trailer_cpu: ABSENT,
            regs_user: 0,
            regs_intr: 0,
            read_format: 0,
            branch_hw_index: false,
            branch_counters: false,
        }
    }
}

/// Offset of `field` among those of `fields` that are in `present`; each takes 8 bytes.
fn offset_of(fields: &[u64], present: u64, field: u64) -> u16 {
    if present & field == 0 {
        return ABSENT;
    }
    let before = fields.iter().take_while(|&&other| other != field);
    8 * before.filter(|&&other| present & other != 0).count() as u16
}

fn size_of(fields: &[u64], present: u64) -> u16 {
    8 * fields.iter().filter(|&&field| present & field != 0).count() as u16
}

impl SampleLayout {
    pub(crate) fn new(attr: &EventAttr) -> Self {
        let present = attr.sample_type;
        let prefix = |field| offset_of(&PREFIX, present, field);

        // A sample has its ID fields in its body; other records have them at the end, on request.
        let trailer_fields = if attr.flags & flag::SAMPLE_ID_ALL != 0 {
            present
        } else {
            0
        };

        // The trailer is at the end, so its offsets count from its own start.
        let trailer = |field| offset_of(&TRAILER, trailer_fields, field);
        // IDENTIFIER and ID have the same value; the former has a fixed offset.
        let either = |identifier: u16, id: u16| if identifier == ABSENT { id } else { identifier };

        // Up to the period every field has a fixed size, so the offsets are known before any
        // sample.
        let mut layout = Self {
            ip: prefix(st::IP),
            tid: prefix(st::TID),
            time: prefix(st::TIME),
            addr: prefix(st::ADDR),
            id: either(prefix(st::IDENTIFIER), prefix(st::ID)),
            stream_id: prefix(st::STREAM_ID),
            cpu: prefix(st::CPU),
            period: prefix(st::PERIOD),
            prefix: size_of(&PREFIX, present),
            trailer: size_of(&TRAILER, trailer_fields),
            trailer_tid: trailer(st::TID),
            trailer_time: trailer(st::TIME),
            trailer_id: either(trailer(st::IDENTIFIER), trailer(st::ID)),
            trailer_stream_id: trailer(st::STREAM_ID),
            trailer_cpu: trailer(st::CPU),
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            read_format: attr.read_format,
            branch_hw_index: attr.branch_sample_type & branch_sample_type::HW_INDEX != 0,
            branch_counters: attr.branch_sample_type & branch_sample_type::COUNTERS != 0,
            ..Self::default()
        };

        // From here on fields vary in size and are read one after the other, in this order.
        for field in TAIL.into_iter().filter(|field| present & field != 0) {
            // Both weight bits share one word.
            if field == st::WEIGHT_STRUCT && present & st::WEIGHT != 0 {
                continue;
            }

            layout.tail[usize::from(layout.tail_len)] = field;
            layout.tail_len += 1;
        }
        layout
    }

    /// This event's fields after the prefix, in order.
    #[inline]
    pub(crate) fn tail(&self) -> &[u64] {
        &self.tail[..usize::from(self.tail_len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(sample_type: u64, flags: u64) -> EventAttr {
        let mut bytes = [0u8; 64];
        bytes[4] = 64;
        bytes[24..32].copy_from_slice(&sample_type.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        EventAttr::parse(&bytes, 0).unwrap()
    }

    #[test]
    fn the_prefix_is_in_the_kernels_order() {
        let layout = attr((1 << 25) - 1, flag::SAMPLE_ID_ALL).layout;
        let places = [layout.id, layout.ip, layout.tid, layout.time, layout.addr];
        assert_eq!(places, [0, 8, 16, 24, 32]);
        assert_eq!(
            [layout.stream_id, layout.cpu, layout.period, layout.prefix],
            [48, 56, 64, 72]
        );
        assert_eq!(
            [layout.trailer_tid, layout.trailer_time, layout.trailer_id],
            [0, 8, 40]
        );
        assert_eq!(
            [layout.trailer_stream_id, layout.trailer_cpu, layout.trailer],
            [24, 32, 48]
        );
        assert_eq!(layout.tail().len(), 15);
    }

    #[test]
    fn unrecorded_fields_are_absent() {
        let layout = attr(st::IP | st::TIME | st::ID | st::CALLCHAIN, 0).layout;
        assert_eq!(
            [layout.ip, layout.tid, layout.time, layout.id],
            [0, ABSENT, 8, 16]
        );
        assert_eq!(
            (layout.prefix, layout.trailer, layout.trailer_time),
            (24, 0, ABSENT)
        );
        assert_eq!(layout.tail(), [st::CALLCHAIN]);
    }
}
