//! Shared by the integration tests: images of this machine's ELF files.
#![allow(dead_code, missing_docs, unreachable_pub)]

#[path = "../../../tests/common/skip.rs"]
mod skip;

use object::{Object, ObjectSection, SectionFlags, elf};
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};

/// ELF files that are likely to exist, from several compilers and in several styles.
pub const FILES: &[&str] = &[
    "/bin/ls",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/bin/python3",
    "/usr/bin/git",
];

/// The image of the file at `path`; `None` if it does not exist.
pub fn image(path: &str) -> Option<Arc<Image>> {
    // Read with another crate, so that our own reader of ELF files is not needed here.
    let bytes = std::fs::read(path).ok()?;
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*bytes).ok()?;

    let mut parts = ImageParts {
        name: path.into(),
        ..ImageParts::default()
    };
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            continue;
        };

        // Code is what the section's flags say; tables are known by their names.
        let (address, size) = (section.address(), section.size());
        if sh_flags.0 & elf::SHF_EXECINSTR.0 != 0 {
            parts.text.push(address..address + size);
        }

        let kinds = [
            SectionKind::EhFrame,
            SectionKind::EhFrameHdr,
            SectionKind::DebugFrame,
        ];
        let kind = kinds.into_iter().find(|k| section.name() == Ok(k.as_str()));
        if let Some(kind) = kind {
            let data = Bytes::from_vec(section.data().ok()?.to_vec());
            parts.sections.push(Section {
                kind,
                address,
                data,
            });
        }
    }

    Some(Arc::new(Image::new(parts)))
}

/// The images of [`FILES`]. Missing files are skipped, with a note.
pub fn images(test: &str) -> Vec<(&'static str, Arc<Image>)> {
    let images = FILES.iter().filter_map(|path| {
        let image = image(path);
        if image.is_none() {
            skip::skip(test, format_args!("no ELF file at {path}"));
        }
        Some((*path, image?))
    });
    images.collect()
}

/// Notes that the rest of `test` cannot run here.
pub fn skip(test: &str, reason: &str) {
    skip::skip(test, reason);
}

/// The output of a tool of this machine; `None`, with a note, if it is not installed.
pub fn tool(test: &str, name: &str, arguments: &[&str]) -> Option<String> {
    match std::process::Command::new(name).args(arguments).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            skip::skip(test, format_args!("{name}: {error}"));
            None
        }
    }
}
