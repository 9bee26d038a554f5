//! Callchains as perf stores them: addresses mixed with context markers.
//!
//! The markers are those of `include/uapi/linux/perf_event.h` (Linux 7.2). They separate the frames
//! of the kernel and of user space, and deferral cookies. Joining deferred chains is in
//! [`crate::stitch`].

use crate::le;

/// Marker: hypervisor frames follow (`PERF_CONTEXT_HV`).
pub const PERF_CONTEXT_HV: u64 = -32i64 as u64;
/// Marker: kernel frames follow (`PERF_CONTEXT_KERNEL`).
pub const PERF_CONTEXT_KERNEL: u64 = -128i64 as u64;
/// Marker: user frames follow (`PERF_CONTEXT_USER`).
pub const PERF_CONTEXT_USER: u64 = -512i64 as u64;
/// Marker: the user frames come in a later record; the next word is its cookie
/// (`PERF_CONTEXT_USER_DEFERRED`, Linux 6.19).
pub const PERF_CONTEXT_USER_DEFERRED: u64 = -640i64 as u64;
/// Marker: frames of a guest follow (`PERF_CONTEXT_GUEST`).
pub const PERF_CONTEXT_GUEST: u64 = -2048i64 as u64;
/// Marker: kernel frames of a guest follow (`PERF_CONTEXT_GUEST_KERNEL`).
pub const PERF_CONTEXT_GUEST_KERNEL: u64 = -2176i64 as u64;
/// Marker: user frames of a guest follow (`PERF_CONTEXT_GUEST_USER`).
pub const PERF_CONTEXT_GUEST_USER: u64 = -2560i64 as u64;
/// Values at or above this one are markers, not addresses (`PERF_CONTEXT_MAX`).
pub const PERF_CONTEXT_MAX: u64 = -4095i64 as u64;

/// Is `word` a context marker, known or not?
pub const fn is_marker(word: u64) -> bool {
    word >= PERF_CONTEXT_MAX
}

/// The context that frames belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Context {
    /// Before any marker: the sample's own cpumode decides.
    Unmarked,
    /// The hypervisor.
    Hypervisor,
    /// The kernel.
    Kernel,
    /// User space.
    User,
    /// User space, in a later record.
    UserDeferred,
    /// A guest, in an unspecified mode.
    Guest,
    /// A guest's kernel.
    GuestKernel,
    /// A guest's user space.
    GuestUser,
    /// A marker unknown to this reader.
    Unknown(u64),
}

impl Context {
    /// The context that a marker starts; `None` if `word` is an address.
    pub const fn from_marker(word: u64) -> Option<Self> {
        if !is_marker(word) {
            return None;
        }
        Some(match word {
            PERF_CONTEXT_HV => Self::Hypervisor,
            PERF_CONTEXT_KERNEL => Self::Kernel,
            PERF_CONTEXT_USER => Self::User,
            PERF_CONTEXT_USER_DEFERRED => Self::UserDeferred,
            PERF_CONTEXT_GUEST => Self::Guest,
            PERF_CONTEXT_GUEST_KERNEL => Self::GuestKernel,
            PERF_CONTEXT_GUEST_USER => Self::GuestUser,
            other => Self::Unknown(other),
        })
    }

    /// A stable machine-readable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unmarked => "unmarked",
            Self::Hypervisor => "hypervisor",
            Self::Kernel => "kernel",
            Self::User => "user",
            Self::UserDeferred => "user-deferred",
            Self::Guest => "guest",
            Self::GuestKernel => "guest-kernel",
            Self::GuestUser => "guest-user",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// One entry of a callchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A marker: the entries after it belong to this context.
    Marker(Context),
    /// A code address. Return addresses are stored unchanged, not minus one.
    Frame {
        /// The frame's context.
        context: Context,
        /// The address as recorded.
        address: u64,
    },
    /// The cookie after `PERF_CONTEXT_USER_DEFERRED`: the user frames are in the
    /// `PERF_RECORD_CALLCHAIN_DEFERRED` of the same thread with this cookie.
    Cookie(u64),
}

/// The words of a callchain, borrowed from the record.
///
/// ```
/// use unwind_sim_perf_data::Callchain;
/// use unwind_sim_perf_data::callchain::{Context, PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER};
///
/// let words = [PERF_CONTEXT_KERNEL, 0xffff_ffff_8100_0010, PERF_CONTEXT_USER, 0x401100, 0x401200];
/// let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
/// let chain = Callchain::new(&bytes);
/// assert!(chain.frames_of(Context::User).eq([0x401100, 0x401200]));
/// assert_eq!(chain.deferred_cookie(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Callchain<'a> {
    words: &'a [u8],
}

impl<'a> Callchain<'a> {
    /// A chain of little-endian 64-bit words; bytes after the last whole word are ignored.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            words: &bytes[..bytes.len() / 8 * 8],
        }
    }

    /// Number of words, including markers.
    pub fn len(&self) -> usize {
        self.words.len() / 8
    }

    /// Is the chain empty?
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The word at `index`.
    pub fn get(&self, index: usize) -> Option<u64> {
        le::u64_at(self.words, index.checked_mul(8)?)
    }

    /// The words as stored, innermost first, including markers.
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + Clone + 'a {
        self.words
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
    }

    /// The decoded words.
    pub fn entries(&self) -> Entries<'a> {
        Entries {
            rest: self.words,
            context: Context::Unmarked,
            cookie_next: false,
        }
    }

    /// The addresses of one context, innermost first.
    pub fn frames_of(&self, wanted: Context) -> impl Iterator<Item = u64> + 'a {
        self.entries().filter_map(move |entry| match entry {
            Entry::Frame { context, address } if context == wanted => Some(address),
            _ => None,
        })
    }

    /// The cookie of a deferred user part: the chain ends with `PERF_CONTEXT_USER_DEFERRED` and the
    /// cookie.
    pub fn deferred_cookie(&self) -> Option<u64> {
        let last = self.len().checked_sub(1)?;
        let marker = self.get(last.checked_sub(1)?)?;
        if marker == PERF_CONTEXT_USER_DEFERRED {
            self.get(last)
        } else {
            None
        }
    }
}

impl std::fmt::Debug for Callchain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.words().map(|word| format!("{word:#x}")))
            .finish()
    }
}

/// Iterator over the entries of a [`Callchain`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    context: Context,
    cookie_next: bool,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let (word, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        let word = u64::from_le_bytes(*word);
        if std::mem::take(&mut self.cookie_next) {
            return Some(Entry::Cookie(word));
        }
        if let Some(context) = Context::from_marker(word) {
            self.context = context;
            self.cookie_next = context == Context::UserDeferred;
            return Some(Entry::Marker(context));
        }
        Some(Entry::Frame {
            context: self.context,
            address: word,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn markers_have_the_values_of_the_kernel_header() {
        assert_eq!(PERF_CONTEXT_KERNEL, 0xffff_ffff_ffff_ff80);
        assert_eq!(PERF_CONTEXT_USER, 0xffff_ffff_ffff_fe00);
        assert_eq!(PERF_CONTEXT_USER_DEFERRED, 0xffff_ffff_ffff_fd80);
        assert_eq!(PERF_CONTEXT_MAX, 0xffff_ffff_ffff_f001);
        assert!(!is_marker(0xffff_ffff_ffff_f000));
    }

    #[test]
    fn a_chain_splits_into_kernel_user_and_cookie() {
        let words = [
            PERF_CONTEXT_KERNEL,
            0xffff_ffff_8100_0000,
            PERF_CONTEXT_USER,
            0x401000,
            0x401100,
        ];
        let data = bytes(&words);
        let chain = Callchain::new(&data);
        assert_eq!(chain.words().collect::<Vec<_>>(), words);
        assert_eq!(
            chain.frames_of(Context::Kernel).collect::<Vec<_>>(),
            [0xffff_ffff_8100_0000]
        );
        assert_eq!(
            chain.frames_of(Context::User).collect::<Vec<_>>(),
            [0x401000, 0x401100]
        );
        assert_eq!(chain.deferred_cookie(), None);

        // The word behind the marker of deferred frames is a cookie and no address.
        let data = bytes(&[
            PERF_CONTEXT_KERNEL,
            7,
            PERF_CONTEXT_USER_DEFERRED,
            0x3_0000_0001,
        ]);
        let chain = Callchain::new(&data);
        assert_eq!(chain.deferred_cookie(), Some(0x3_0000_0001));
        assert_eq!(chain.entries().last(), Some(Entry::Cookie(0x3_0000_0001)));
    }

    #[test]
    fn a_cookie_that_looks_like_a_marker_stays_a_cookie() {
        let data = bytes(&[PERF_CONTEXT_USER_DEFERRED, PERF_CONTEXT_USER]);
        let entries: Vec<_> = Callchain::new(&data).entries().collect();
        assert_eq!(
            entries,
            [
                Entry::Marker(Context::UserDeferred),
                Entry::Cookie(PERF_CONTEXT_USER)
            ]
        );
    }

    #[test]
    fn an_unknown_marker_is_kept_and_odd_bytes_are_dropped() {
        let mut data = bytes(&[-3000i64 as u64, 5]);
        data.push(1);
        let chain = Callchain::new(&data);
        assert_eq!(chain.len(), 2);
        let unknown = Context::Unknown(-3000i64 as u64);
        assert_eq!(chain.frames_of(unknown).collect::<Vec<_>>(), [5]);
    }
}
