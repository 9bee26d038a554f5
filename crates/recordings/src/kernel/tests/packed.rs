//! bzImage payloads in every compression. What no crate writes here was packed with the tool that
//! Linux's build uses, and is stored.

use super::open;
use super::synthetic::{USUAL, bzimage, vmlinux};
use crate::kernel::payload::unpack;
use crate::kernel::{Compression, KernelErrorKind};
use std::io::Write;

/// [`large`] and `vmlinux(&USUAL)` as xz packs them, so that the tests do not need it:
/// `xz --check=crc32 --x86 --lzma2=dict=32MiB` and `xz --format=lzma -9`.
const STORED: [(Compression, bool, &[u8]); 4] = [
    (Compression::Xz, true, include_bytes!("packed/large.xz")),
    (Compression::Xz, false, include_bytes!("packed/usual.xz")),
    (Compression::Lzma, true, include_bytes!("packed/large.lzma")),
    (
        Compression::Lzma,
        false,
        include_bytes!("packed/usual.lzma"),
    ),
];

/// The stored file for `input`.
fn stored(compression: Compression, input: &[u8]) -> Vec<u8> {
    let is_large = input.len() == LARGE;
    let found = STORED
        .iter()
        .find(|(of, large, _)| *of == compression && *large == is_large);
    found.expect("a stored file").2.to_vec()
}

/// More than one block of lz4.
const LARGE: usize = 9 << 20;

fn large() -> Vec<u8> {
    let mut plain = vmlinux(&USUAL);
    plain.resize(LARGE, 0x5a);
    plain
}

fn lz4_legacy(input: &[u8]) -> Vec<u8> {
    let mut out = vec![0x02, 0x21, 0x4c, 0x18];
    for block in input.chunks(8 << 20) {
        let packed = lz4_flex::block::compress(block);
        out.extend((packed.len() as u32).to_le_bytes());
        out.extend(packed);
    }
    out
}

/// The format that lzop writes, without checksums.
fn lzop(input: &[u8]) -> Vec<u8> {
    let mut out = b"\x89LZO\0\r\n\x1a\n\x10\x40\x20\xa0\x09\x40\x03\x09".to_vec();
    // Flags, mode, time, name, checksum.
    out.extend([0; 4 + 4 + 8 + 1 + 4]);
    for block in input.chunks(256 << 10) {
        let packed = lzokay::compress::compress(block).expect("in memory");
        let stored = if packed.len() < block.len() {
            &packed
        } else {
            block
        };
        out.extend((block.len() as u32).to_be_bytes());
        out.extend((stored.len() as u32).to_be_bytes());
        out.extend(stored);
    }
    out.extend([0; 4]);
    out
}

fn pack(compression: Compression, input: &[u8]) -> Vec<u8> {
    let mut packed = match compression {
        Compression::None => return input.to_vec(),
        Compression::Gzip => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            writer.write_all(input).expect("in memory");
            // gzip's own last four bytes are the size.
            return writer.finish().expect("in memory");
        }
        Compression::Bzip2 => {
            let mut writer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
            writer.write_all(input).expect("in memory");
            writer.finish().expect("in memory")
        }
        Compression::Xz | Compression::Lzma => stored(compression, input),
        Compression::Lz4 => lz4_legacy(input),
        Compression::Zstd => zstd::encode_all(input, 19).expect("in memory"),
        Compression::Lzo => lzop(input),
    };
    packed.extend((input.len() as u32).to_le_bytes());
    packed
}

const ALL: [Compression; 8] = [
    Compression::None,
    Compression::Gzip,
    Compression::Bzip2,
    Compression::Lzma,
    Compression::Xz,
    Compression::Lzo,
    Compression::Lz4,
    Compression::Zstd,
];

#[test]
fn every_compression_gives_the_same_kernel() {
    let plain = large();
    let expected = open(plain.clone()).expect("a kernel");
    for compression in ALL {
        let image = bzimage(&pack(compression, &plain));
        let kernel = open(image).unwrap_or_else(|error| panic!("{compression:?}: {error}"));
        assert_eq!(
            kernel.payload.as_ref().map(|p| p.compression),
            Some(compression)
        );
        assert_eq!(kernel.size, plain.len() as u64, "{compression:?}");
        assert_eq!(kernel.version.as_deref(), Some("6.1.0-boot"));
        assert_eq!(kernel.image.symbols(), expected.image.symbols());
        assert_eq!(kernel.encoding, expected.encoding);
    }
}

#[test]
fn a_wrong_size_after_the_payload_changes_nothing() {
    for compression in ALL {
        let plain = vmlinux(&USUAL);
        for size in [0_u32, 77, u32::MAX] {
            let mut packed = pack(compression, &plain);
            if matches!(compression, Compression::None | Compression::Gzip) {
                continue;
            }
            let at = packed.len() - 4;
            packed[at..].copy_from_slice(&size.to_le_bytes());
            let kernel = open(bzimage(&packed)).expect("a kernel");
            assert_eq!(kernel.size, plain.len() as u64, "{compression:?} {size}");
        }
    }
}

#[test]
fn the_limit_holds_in_every_compression_whatever_the_claim() {
    let plain = large();
    let len = plain.len() as u64;
    for compression in ALL {
        let packed = pack(compression, &plain);
        for claim in [0, len, u64::MAX] {
            let unpacked = |max| unpack(&packed, compression, 0, claim, max);
            let whole = unpacked(len).unwrap_or_else(|error| panic!("{compression:?}: {error}"));
            // What is not compressed has the claim at its end, as in an image.
            assert_eq!(whole[..plain.len()], plain[..], "{compression:?}");

            let error = unpacked(len - 1).expect_err("more than the limit");
            let is_limit =
                matches!(error, KernelErrorKind::UnpackLimit { limit } if limit == len - 1);
            assert!(is_limit, "{compression:?} {claim}: {error:?}");
        }
    }
}

#[test]
fn damaged_payloads_are_errors() {
    for compression in ALL {
        let packed = pack(compression, &vmlinux(&USUAL));
        let cut = &packed[..packed.len() / 2];
        let result = open(bzimage(cut));
        match compression {
            // The tables are after the cut.
            Compression::None => drop(result),
            _ => {
                let error = result.expect_err("cut");
                let KernelErrorKind::Unpack { offset, .. } = error.what else {
                    panic!("{compression:?}: {error}");
                };
                match compression {
                    // The error gives the offset of the block.
                    Compression::Lzo => assert!(offset > 1024 + 0x40),
                    _ => assert_eq!(offset, 1024 + 0x40),
                }
            }
        }
    }
}

#[test]
fn bad_boot_headers_are_errors_with_their_offsets() {
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let good = bzimage(&vmlinux(&USUAL));
    let error = |change: Change<'_>| {
        let mut bytes = good.clone();
        change(&mut bytes);
        open(bytes).expect_err("bad").to_string()
    };
    let cases: [(Change<'_>, &str); 5] = [
        (&|b| b[0x202] = b'h', "neither a bzImage"),
        (
            &|b| b[0x206..0x208].copy_from_slice(&[7, 2]),
            "0x206: a protocol before 2.08",
        ),
        (&|b| b[0x24f] = 0xff, "0x248: the payload lies outside"),
        (&|b| b.truncate(0x240), "0x248: the file ends"),
        (&|b| b[1024 + 0x40] = 0, "starts with [00, 45, 4c, 46]"),
    ];
    for (change, expected) in cases {
        let message = error(change);
        assert!(message.contains(expected), "{message}");
    }
}
