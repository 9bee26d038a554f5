//! What is kept for the address space last used, for the kernel's unwinders.

use super::Cache;
use crate::image::{AddressSpace, Stamp};
use crate::kernel;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

/// Identifies the contents of an address space: its stamp and the number of its mappings.
type Held = (Stamp, usize);

/// What is kept for the address space last used.
#[derive(Debug, Default)]
pub(super) struct OfSpace {
    kept: Option<(Held, Arc<dyn Any + Send + Sync>)>,
    /// The ORC entries found in the space.
    finds: Option<Box<kernel::Finds>>,
}

impl OfSpace {
    /// What `make` returns for `space`. Called again if the space differs from the last one or has
    /// changed.
    pub(super) fn get<T: Any + Send + Sync>(
        &mut self,
        space: &AddressSpace,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        // The stamp does not change when something is mapped where nothing was.
        let stamp = (space.stamp(), space.mappings().len());
        if let Some((at, any)) = &self.kept
            && *at == stamp
            && let Ok(kept) = Arc::clone(any).downcast()
        {
            return kept;
        }
        let made = Arc::new(make());
        *self = OfSpace {
            kept: Some((stamp, made.clone())),
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
    pub(crate) fn take_finds(&mut self) -> Box<kernel::Finds> {
        self.of_space.finds.take().unwrap_or_default()
    }

    pub(crate) fn put_finds(&mut self, finds: Box<kernel::Finds>) {
        self.of_space.finds = Some(finds);
    }
}
