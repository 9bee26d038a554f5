//! The symbols of a kernel and its modules.

use super::helper::Helper;
use super::kallsyms::Kallsyms;
use super::kernel_list;
use super::objects::{Symbol, Symbols};
use super::places::Places;
use std::ops::Range;
use unwind_sim_perf_data::Object;

/// The symbols of the recorded kernel, from a list such as `/proc/kallsyms`, and the names of the
/// code that it generated. Files have none here.
pub struct KernelSymbols {
    places: Places,
    helper: &'static dyn Helper,
    list: Option<Kallsyms>,
    /// Name of the last generated code looked up.
    generated: Vec<u8>,
}

impl KernelSymbols {
    /// A source that has not read any list. `helper` opens it.
    pub fn new(places: Places, helper: &'static dyn Helper) -> KernelSymbols {
        KernelSymbols {
            places,
            helper,
            list: None,
            generated: Vec::new(),
        }
    }

    fn list(&mut self) -> &Kallsyms {
        let (places, helper) = (&self.places, self.helper);
        self.list
            .get_or_insert_with(|| Kallsyms::parse(kernel_list::text(places, helper)))
    }
}

impl Symbols for KernelSymbols {
    fn symbol(&mut self, object: &Object<'_>, address: u64) -> Option<Symbol<'_>> {
        match *object {
            Object::Kernel(part) => self.list().symbol(part, address),
            Object::Generated { name, length } => {
                self.generated = name.to_vec();
                Some(Symbol {
                    name: &self.generated,
                    range: 0..length,
                })
            }
            Object::File { .. } | Object::Anonymous { .. } => None,
        }
    }

    fn kernel_range(&mut self) -> Option<Range<u64>> {
        self.list().core()
    }
}
