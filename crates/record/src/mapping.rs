//! Executable memory of an emulated process as a mapping with an image.

use crate::jit::{BARE, Jit, REGISTERED, has_no_file};
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_emulator::linux::MappedFile;
use unwind_sim_recordings::files::{ImageFinder, MappingRequest};
use unwind_sim_unwind::image::{Image, ImageParts, Mapping};

/// Executable memory of process `pid`, with the image of its file, if that can be found.
pub(crate) fn mapping_of(
    finder: &mut ImageFinder,
    pid: u32,
    range: Range<u64>,
    file: Option<MappedFile<'_>>,
) -> Mapping {
    let path = file.map(|f| String::from_utf8_lossy(f.path).into_owned());
    let name = path.unwrap_or_default();
    let (image, bias) = finder.mapping_for(&MappingRequest {
        pid,
        name: &name,
        range: range.clone(),
        file_offset: file.map_or(0, |f| f.offset),
        executable: true,
        build_id: &[],
    });
    Mapping {
        range,
        bias,
        image,
        name,
    }
}

/// Gives generated code without a table an image of its own, if `jit` can tell its functions. Other
/// generated code stays in no image, as in a recording of this computer's processor. Returns
/// whether the mapping is of generated code.
pub(crate) fn give_image(jit: &Jit, mapping: &mut Mapping) -> bool {
    let name = &mapping.name;
    let is_generated = jit.can_tell() && has_no_file(name) || name == REGISTERED;
    if is_generated && mapping.image.is_none() {
        mapping.image = Some(bare_image(&mapping.range));
        mapping.bias = 0;
    }
    is_generated
}

/// An image of generated code without a table.
fn bare_image(range: &Range<u64>) -> Arc<Image> {
    Arc::new(Image::new(ImageParts {
        name: BARE.to_owned(),
        text: vec![range.clone()],
        ..ImageParts::default()
    }))
}
