//! What is kept of the address space last used: for the kernel's unwinders.

use crate::image::AddressSpace;
use crate::kernel;
use alloc::sync::Arc;
use core::any::Any;

/// What an address space holds: its stamp, and how many mappings.
type Stamp = ((u64, u32), usize);

/// What is kept of the address space last used.
#[derive(Debug, Default)]
pub(super) struct OfSpace {
    kept: Option<(Stamp, Arc<dyn Any + Send + Sync>)>,
    /// The ORC entries found in it.
    pub(super) finds: kernel::Finds,
}

impl OfSpace {
    /// What `make` gives for `space`; made anew when it is another one than the last time, or has
    /// changed.
    pub(super) fn get<T: Any + Send + Sync>(
        &mut self,
        space: &AddressSpace,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        // Something mapped where nothing was does not change the stamp.
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
            finds: kernel::Finds::default(),
        };
        made
    }
}
