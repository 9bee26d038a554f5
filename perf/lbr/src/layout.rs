//! Sizes of the memory in which the kernel saves branch records.
//!
//! `struct x86_perf_task_context` and `struct x86_perf_task_context_arch_lbr` of
//! `arch/x86/events/perf_event.h`, `struct perf_ctx_data` of `include/linux/perf_event.h`.

/// Bytes of `struct perf_ctx_data` itself: an `rcu_head` of two pointers, two 32-bit numbers and
/// two pointers. In the patch of January 2020 it has other members and the same size.
pub const CONTEXT_HEADER_BYTES: u64 = 40;

/// Bytes of an entry: from, to and info.
const ENTRY: u64 = 3 * 8;
/// `MAX_LBR_ENTRIES`
const ENTRIES: u64 = 32;
/// `int tos, valid_lbrs, lbr_callstack_users, lbr_stack_state, log_id`
const NUMBERS: u64 = 5 * 4;
/// `lbr_sel`: the filter of a guest.
const FILTER: u64 = 8;
/// `lbr_callstack_users`, `lbr_stack_state` and `log_id`.
const ARCHITECTURAL_NUMBERS: u64 = 3 * 4;

/// The structure, which depends on the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Up to Linux 5.8: 32 entries and five 32-bit numbers.
    V2020,
    /// From Linux 5.9 on: also the filter of a guest.
    #[default]
    V6_18,
    /// Architectural LBR with this number of entries, and three 32-bit numbers.
    Architectural(u32),
}

impl Layout {
    /// The sum of the members' sizes, bytes.
    pub const fn member_bytes(self) -> u64 {
        match self {
            Self::V2020 => ENTRIES * ENTRY + NUMBERS,
            Self::V6_18 => FILTER + ENTRIES * ENTRY + NUMBERS,
            Self::Architectural(entries) => ARCHITECTURAL_NUMBERS + entries as u64 * ENTRY,
        }
    }

    /// The allocated size of the structure, a multiple of its alignment, bytes.
    pub const fn bytes(self) -> u64 {
        self.member_bytes().next_multiple_of(8)
    }

    /// The name in scenarios.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2020 => "2020",
            Self::V6_18 => "6.18",
            Self::Architectural(_) => "architectural",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structures as C lays them out, with the members in the order of the kernel's source.
    #[test]
    fn r002_4_sizes_are_those_of_the_structures() {
        #[repr(C)]
        struct Numbers {
            users: i32,
            state: i32,
            log_id: i32,
        }
        #[repr(C)]
        struct Linux5_5 {
            from: [u64; 32],
            to: [u64; 32],
            info: [u64; 32],
            tos: i32,
            valid_lbrs: i32,
            opt: Numbers,
        }
        #[repr(C)]
        struct Linux6_18 {
            lbr_sel: u64,
            tos: i32,
            valid_lbrs: i32,
            opt: Numbers,
            entries: [[u64; 3]; 32],
        }
        #[repr(C)]
        struct Architectural {
            opt: Numbers,
            entries: [[u64; 3]; 32],
        }
        #[repr(C)]
        struct Patch2020 {
            rcu_head: [usize; 2],
            refcount: i32,
            data_size: usize,
            data: usize,
        }
        #[repr(C)]
        struct Linux6_15 {
            rcu_head: [usize; 2],
            refcount: i32,
            global: i32,
            ctx_cache: usize,
            data: usize,
        }

        // The compiler's own layout is the authority for the sizes.
        let size = |layout: Layout| layout.bytes() as usize;
        assert_eq!(size(Layout::V2020), size_of::<Linux5_5>());
        assert_eq!(size(Layout::V6_18), size_of::<Linux6_18>());
        assert_eq!(size(Layout::Architectural(32)), size_of::<Architectural>());
        let header = CONTEXT_HEADER_BYTES as usize;
        assert_eq!(header, size_of::<Patch2020>());
        assert_eq!(header, size_of::<Linux6_15>());
        // The patch of 2020 states the sum of the members.
        assert_eq!(Layout::V2020.member_bytes(), 788);
        assert_eq!([size(Layout::V2020), size(Layout::V6_18)], [792, 800]);
    }
}
