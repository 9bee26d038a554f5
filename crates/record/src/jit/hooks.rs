//! The functions by which programs register unwind tables, by name.

use hashbrown::HashMap;
use unwind_sim_recordings::gdb_jit;
use unwind_sim_unwind::image::{Image, Mapping, Symbol};

/// What a function does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    /// Registers the entries at its first argument: all up to a length of zero, or `single`, one
    /// FDE. `bases`: its fourth argument is the base of data-relative pointers.
    Frames { single: bool, bases: bool },
    /// Registers the sections in a list of pointers that ends with zero.
    Tables,
    /// Takes back what was registered by the same argument.
    Deregister,
    /// Tells gdb that the descriptor at this address has changed.
    Gdb { descriptor: u64 },
    /// Writes to a C stream, which may lead to a jitdump file.
    Write,
}

/// The functions of the C library that write to a stream: pointer, size, number, stream.
const WRITERS: [&str; 3] = ["fwrite", "fwrite_unlocked", "_IO_fwrite"];

/// LLVM's libunwind has this function, libgcc does not. Its `__register_frame` takes one FDE.
const ONLY_IN_LIBUNWIND: [&str; 3] = [
    "unw_getcontext",
    "__unw_getcontext",
    "__unw_add_dynamic_fde",
];

/// The functions of a mapped image, by address.
pub(super) fn of(image: &Image, mapping: &Mapping) -> HashMap<u64, Hook> {
    let mut found = HashMap::new();
    // Symbols of libgcc have versions: `name@VERSION`.
    let plain = |name: &'_ str| name.split('@').next().unwrap_or_default().to_owned();
    let symbols = image.symbols().iter();
    // Entries of the procedure linkage table lead to functions of other images.
    let ours = symbols.filter(|s| s.name.starts_with("__") && !is_linkage(s));

    for symbol in ours {
        let hook = match plain(&symbol.name).as_str() {
            "__register_frame" => Hook::Frames {
                single: has_libunwind(image),
                bases: false,
            },
            // LLVM's libunwind: one FDE.
            "__unw_add_dynamic_fde" => Hook::Frames {
                single: true,
                bases: false,
            },
            "__register_frame_info" | "__unw_add_dynamic_eh_frame_section" => Hook::Frames {
                single: false,
                bases: false,
            },
            "__register_frame_info_bases" => Hook::Frames {
                single: false,
                bases: true,
            },
            "__register_frame_table"
            | "__register_frame_info_table"
            | "__register_frame_info_table_bases" => Hook::Tables,
            "__deregister_frame"
            | "__deregister_frame_info"
            | "__deregister_frame_info_bases"
            | "__unw_remove_dynamic_fde"
            | "__unw_remove_dynamic_eh_frame_section" => Hook::Deregister,
            "__jit_debug_register_code" => match gdb_jit::descriptor(image) {
                Some(svma) => Hook::Gdb {
                    descriptor: svma.wrapping_add(mapping.bias),
                },
                None => continue,
            },
            _ => continue,
        };

        let address = symbol.address.wrapping_add(mapping.bias);
        // An image has several mappings, and the function is in one of them.
        if mapping.range.contains(&address) {
            found.insert(address, hook);
        }
    }
    found
}

/// Is this an entry of the procedure linkage table, which leads to a function of another image?
fn is_linkage(symbol: &Symbol) -> bool {
    symbol.name.ends_with("@plt")
}

/// The functions that write to C streams, by address.
pub(super) fn writers<'i>(image: &'i Image, mapping: &'i Mapping) -> impl Iterator<Item = u64> {
    let symbols = image.symbols().iter();
    let ours = symbols.filter(|symbol| {
        let name = symbol.name.split('@').next();
        !is_linkage(symbol) && name.is_some_and(|name| WRITERS.contains(&name))
    });
    let addresses = ours.map(|symbol| symbol.address.wrapping_add(mapping.bias));
    addresses.filter(|address| mapping.range.contains(address))
}

fn has_libunwind(image: &Image) -> bool {
    let symbols = image.symbols().iter();
    symbols
        .into_iter()
        .any(|s| ONLY_IN_LIBUNWIND.contains(&s.name.as_str()))
}
