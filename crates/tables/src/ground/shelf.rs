//! Files that stay where they are while proofs refer to them.

use crate::file::File;
use std::cell::OnceCell;

/// A list of files that only grows.
#[derive(Default)]
pub struct FileArena {
    first: OnceCell<Box<ArenaNode>>,
}

struct ArenaNode {
    file: File,
    next: OnceCell<Box<ArenaNode>>,
}

impl FileArena {
    /// Adds a file, which stays where it is as long as the arena lives.
    pub fn add(&self, file: File) -> &File {
        let mut cell = &self.first;
        while let Some(place) = cell.get() {
            cell = &place.next;
        }
        let place = cell.get_or_init(|| {
            Box::new(ArenaNode {
                file,
                next: OnceCell::new(),
            })
        });
        &place.file
    }
}

impl Drop for FileArena {
    /// One after the other: the list may be long.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut place) = next {
            next = place.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use unwind_sim_unwind::image::{Image, ImageParts};

    #[test]
    fn files_stay_in_order() {
        let shelf = FileArena::default();
        let image = |name: &str| {
            let name = name.to_owned();
            let parts = ImageParts {
                name,
                ..ImageParts::default()
            };
            Arc::new(Image::new(parts))
        };
        let one = shelf.add(File::of_image(&image("one")));
        let two = shelf.add(File::of_image(&image("two")));
        assert_eq!((one.name(), two.name()), ("one", "two"));
    }
}
