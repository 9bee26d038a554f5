//! The KASLR offset: how far a kernel was moved from its link addresses.
//!
//! KASLR moves the whole kernel by a multiple of `CONFIG_PHYSICAL_ALIGN`, at least 2 MiB, within
//! the 1 GiB of its address range (Linux `arch/x86/boot/compressed/kaslr.c`,
//! `find_random_virt_addr`).

use super::KernelImage;
use unwind_sim_unwind::image::Image;

/// Alignment of the offset, bytes.
pub const KASLR_ALIGN: u64 = 2 << 20;
/// Size of a kernel's address range, bytes.
const RANGE: u64 = 1 << 30;

impl KernelImage {
    /// The offset, given that `symbol` was seen at `at`: the bias of the kernel's mapping. `None`
    /// if there is no such symbol, or if KASLR cannot produce the offset.
    pub fn kaslr_by_symbol(&self, symbol: &str, at: u64) -> Option<u64> {
        let offset = at.checked_sub(self.symbols.address(symbol)?)?;
        (offset % KASLR_ALIGN == 0 && offset < RANGE).then_some(offset)
    }

    /// The offset, given return addresses, such as words of stacks: the one at which most of them
    /// directly follow a call. `None` if no offset is better than all others, or if even the best
    /// fits fewer than half of the addresses that may be the kernel's.
    ///
    /// The addresses should come from many functions: one address may follow a call at several
    /// offsets.
    pub fn kaslr(&self, returns: &[u64]) -> Option<u64> {
        let image = &self.image;
        let first = image.text().iter().map(|r| r.start).min()?;
        let last = image.text().iter().map(|r| r.end).max()?;
        let mut unique = returns.to_vec();
        unique.retain(|a| (first..last.saturating_add(RANGE)).contains(a));
        unique.sort_unstable();
        unique.dedup();
        let counted = (0..RANGE / KASLR_ALIGN).map(|n| {
            let offset = n * KASLR_ALIGN;
            let behind = |a: &&u64| is_behind_call(image, a.wrapping_sub(offset));
            (unique.iter().filter(behind).count(), offset)
        });
        let mut counted: Vec<_> = counted.collect();
        counted.sort_unstable();
        let [.., (second, _), (most, offset)] = counted[..] else {
            return None;
        };
        (most > second && 2 * most >= unique.len()).then_some(offset)
    }
}

/// Does a call end at `svma`? Recognizes the bytes of `call rel32`, and of `call` through a
/// register or memory (`ff /2`) of any length.
fn is_behind_call(image: &Image, svma: u64) -> bool {
    /// Maximum length of `ff /2` without prefixes, bytes.
    const LEN_MAX: u64 = 7;
    if !image.is_text(svma) {
        return false;
    }
    let Some(start) = svma.checked_sub(LEN_MAX) else {
        return false;
    };

    let before = image.text_bytes(start, LEN_MAX as usize);
    let &[a, b, c, d, e, f, g] = before else {
        return false;
    };

    // `/2` is in the middle bits of ModRM (Intel SDM volume 2, 3.1.1.1).
    let call = |opcode: u8, modrm: u8| opcode == 0xff && modrm & 0x38 == 0x10;
    // Opcode, ModRM, SIB and displacement (Intel SDM volume 2, 2.1.5).
    let length = |modrm: u8, at: u64| {
        let sib = u64::from(modrm & 7 == 4 && modrm & 0xc0 != 0xc0);
        let displacement = match (modrm >> 6, modrm & 7) {
            (0, 5) | (2, _) => 4,
            (1, _) => 1,
            _ => 0,
        };
        2 + sib + displacement == LEN_MAX - at
    };

    let pairs = [
        (a, b, 0),
        (b, c, 1),
        (c, d, 2),
        (d, e, 3),
        (e, f, 4),
        (f, g, 5),
    ];

    // `call rel32` has five bytes, so its opcode is the third of seven.
    c == 0xe8
        || pairs
            .into_iter()
            .any(|(opcode, modrm, at)| call(opcode, modrm) && length(modrm, at))
}
