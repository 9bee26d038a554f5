//! framehop 0.16, samply's unwinder: the peer with which our speed is compared.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};

use super::image::{Bytes, Image};
use super::snapshot::{RBP, REGS, RIP, RSP, Stack};

pub(crate) type Framehop = UnwinderX86_64<Bytes>;
pub(crate) type Cache = CacheX86_64;

/// Converts an image to a framehop module.
pub(crate) fn module(image: &Image) -> Module<Bytes> {
    let elf = &image.elf;
    let svma = |s: &Option<super::image::Section>| s.as_ref().map(|s| s.svma.clone());
    let bytes = |s: &Option<super::image::Section>| s.as_ref().map(|s| s.bytes.clone());
    Module::new(
        String::new(),
        image.range.clone(),
        image.bias,
        ExplicitModuleSectionInfo {
            // The addresses are the file's own, so their base is 0. Only sections that are loaded
            // are given.
            base_svma: 0,
            text_svma: svma(&elf.text),
            text: bytes(&elf.text),
            got_svma: svma(&elf.got),
            eh_frame_svma: svma(&elf.eh_frame),
            eh_frame: bytes(&elf.eh_frame),
            eh_frame_hdr_svma: svma(&elf.eh_frame_hdr),
            eh_frame_hdr: bytes(&elf.eh_frame_hdr),
            stubs_svma: None,
            stub_helper_svma: None,
            unwind_info: None,
            debug_frame: None,
            text_segment_svma: None,
            text_segment: None,
        },
    )
}

/// An unwinder with all `images`.
pub(crate) fn unwinder(images: &[Image]) -> Framehop {
    let mut unwinder = Framehop::new();
    for image in images {
        unwinder.add_module(module(image));
    }
    unwinder
}

/// Appends the addresses of a walk to `out`: the instruction pointer, then return addresses.
pub(crate) fn walk(
    unwinder: &Framehop,
    cache: &mut Cache,
    regs: &[u64; REGS],
    stack: Stack<'_>,
    out: &mut Vec<u64>,
) {
    let mut read = |address| stack.read(address).ok_or(());
    let start = UnwindRegsX86_64::new(regs[RIP], regs[RSP], regs[RBP]);
    let mut frames = unwinder.iter_frames(regs[RIP], start, cache, &mut read);
    while let Ok(Some(frame)) = frames.next() {
        out.push(frame.address());
    }
}
