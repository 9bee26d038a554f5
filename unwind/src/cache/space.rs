//! What is kept for the address space last used, for the kernel's unwinders.

use super::Cache;
use crate::image::{AddressSpace, Contents};
use crate::kernel;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

/// What is kept for the address space last used.
#[derive(Debug, Default)]
pub(super) struct SpaceCache {
    kept: Option<(Contents, Arc<dyn Any + Send + Sync>)>,
    /// The ORC entries found in the space.
    finds: Option<Box<kernel::FindCache>>,
}

impl SpaceCache {
    /// What `make` returns for `space`. Called again if the space differs from the last one or has
    /// changed.
    pub(super) fn get<T: Any + Send + Sync>(
        &mut self,
        space: &AddressSpace,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let contents = space.contents();
        if let Some((at, any)) = &self.kept
            && *at == contents
            && let Ok(kept) = Arc::clone(any).downcast()
        {
            return kept;
        }
        let made = Arc::new(make());
        *self = SpaceCache {
            kept: Some((contents, made.clone())),
            finds: None,
        };
        made
    }
}

impl Cache {
    /// What an unwinder needs of a whole address space, made by `make`. Made again if the space
    /// differs from the last one or has changed.
    pub(crate) fn of_space<T: Any + Send + Sync>(
        &mut self,
        space: &AddressSpace,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        self.of_space.get(space, make)
    }

    /// Takes the entries that a kernel unwinder found. Return them with [`Cache::put_finds`].
    pub(crate) fn take_finds(&mut self) -> Box<kernel::FindCache> {
        self.of_space.finds.take().unwrap_or_default()
    }

    pub(crate) fn put_finds(&mut self, finds: Box<kernel::FindCache>) {
        self.of_space.finds = Some(finds);
    }
}
