//! The images of an emulated program, from the files that it maps.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use unwind_sim_emulator::linux::MappedFile;
use unwind_sim_emulator::{Access, Permissions};
use unwind_sim_recordings::files::{FileProblem, FinderOptions, ImageFinder, MappingRequest};
use unwind_sim_unwind::image::{Image, ImageParts, Mapping, SectionKind};

/// Finds images.
pub struct Images {
    finder: ImageFinder,
    /// The path of a program, and the image whose tables replace the program's.
    tables: Option<(Vec<u8>, Arc<Image>)>,
    replaced: Option<Arc<Image>>,
}

impl Images {
    /// Finds files below `root`, or on this machine if there is no root.
    pub fn new(root: Option<PathBuf>) -> Images {
        let options = FinderOptions {
            symfs: root,
            // JIT maps and /proc on this machine belong to its own processes.
            jit_dir: None,
            ..FinderOptions::system()
        };
        Images {
            finder: ImageFinder::new(options),
            tables: None,
            replaced: None,
        }
    }

    /// Uses the unwind tables of another image for `program`. It has the same code, with tables
    /// made by another tool.
    pub fn replace_tables(&mut self, program: Vec<u8>, tables: Arc<Image>) {
        self.tables = Some((program, tables));
    }

    /// The first file that is there but could not be read: without it, rows seem to be missing.
    pub(crate) fn unread(&self) -> Option<&FileProblem> {
        let mut problems = self.finder.problems().iter();
        problems.find(|problem| problem.is_unread())
    }

    /// The mapping of a file.
    pub(crate) fn mapping(
        &mut self,
        range: Range<u64>,
        permissions: Permissions,
        file: MappedFile<'_>,
    ) -> Mapping {
        let name = String::from_utf8_lossy(file.path).into_owned();
        let request = MappingRequest {
            pid: 1,
            name: &name,
            range: range.clone(),
            file_offset: file.offset,
            executable: permissions.allow(Access::Execute),
            // None is asked for: the file that is read here is the one that the program maps.
            build_id: &[],
        };
        let (mut image, bias) = self.finder.mapping_for(&request);

        // However often the program is mapped, it stays one image.
        if let (Some((program, tables)), Some(own)) = (&self.tables, &image)
            && program == file.path
        {
            let replaced = self
                .replaced
                .get_or_insert_with(|| with_tables(own, tables));
            image = Some(replaced.clone());
        }

        Mapping {
            range,
            bias,
            image,
            name,
        }
    }
}

/// `image` with the unwind tables of `other`.
fn with_tables(image: &Image, other: &Image) -> Arc<Image> {
    let is_code = |kind| kind == SectionKind::Text;
    let own = image.sections().iter().filter(|s| is_code(s.kind));
    let others = other.sections().iter().filter(|s| !is_code(s.kind));
    Arc::new(Image::new(ImageParts {
        name: image.name().to_owned(),
        build_id: image.build_id().to_vec(),
        text: image.text().to_vec(),
        sections: own.chain(others).cloned().collect(),
        symbols: image.symbols().to_vec(),
    }))
}

#[cfg(test)]
mod tests;
