//! What a boot loader needs: with and without a bzImage, and relocations.

use super::synthetic::{Shape, USUAL, bzimage, vmlinux};
use crate::input_file::InputFile;
use crate::kernel::{Bootable, KernelErrorKind, bootable};
use std::path::Path;
use std::sync::Arc;

fn of(file: Vec<u8>) -> Result<Bootable, KernelErrorKind> {
    let file = InputFile::held(Path::new("kernel"), Arc::new(file));
    bootable(&file).map_err(|error| {
        assert_eq!(error.file, "kernel");
        error.what
    })
}

const RELOCATIONS: &[u8] = &[0, 0, 0, 0, 8, 0, 0, 0x81, 0, 0, 0, 0];

#[test]
fn a_bzimage_has_a_header_and_relocations() {
    // Without section headers the file ends with a segment.
    for sections in [true, false] {
        let vmlinux = vmlinux(&Shape { sections, ..USUAL });
        let vmlinux = match sections {
            true => vmlinux,
            // What the synthetic file has behind its segment is of its section headers.
            false => {
                let size = u64::from_le_bytes(*vmlinux[64 + 32..].first_chunk().expect("p_filesz"));
                vmlinux[..0x1000 + size as usize].to_vec()
            }
        };

        let payload = [&vmlinux[..], RELOCATIONS].concat();
        let file = bzimage(&payload);
        let found = of(file.clone()).expect("a kernel");
        assert!(found.image[..] == payload[..]);
        let header = found.setup_header.expect("a header");
        assert!(header[..] == file[0x1f1..0x290]);
        assert_eq!(found.relocations.as_deref(), Some(RELOCATIONS));

        let found = of(bzimage(&vmlinux)).expect("a kernel");
        assert!(found.setup_header.is_some());
        assert_eq!(found.relocations.as_deref(), None);
    }
}

#[test]
fn a_vmlinux_has_no_header() {
    let found = of(vmlinux(&USUAL)).expect("a kernel");
    assert!(found.image[..] == vmlinux(&USUAL)[..]);
    assert!(found.setup_header.is_none() && found.relocations.is_none());
}

#[test]
fn what_is_no_kernel_is_refused() {
    assert_eq!(of(b"text".to_vec()).err(), Some(KernelErrorKind::NotKernel));
    let what = of(bzimage(b"bad!")).err();
    let wanted = KernelErrorKind::UnknownCompression {
        offset: 1024 + 0x40,
        magic: *b"bad!",
    };
    assert_eq!(what, Some(wanted));

    // Whatever the headers say, there is no panic; the loader says what is wrong.
    let image = vmlinux(&USUAL);
    for at in 0..0x78 {
        for value in [0, 0x7f, 0xff] {
            let mut image = image.clone();
            image[at] = value;
            let _ = of(bzimage(&image));
        }
    }
}
