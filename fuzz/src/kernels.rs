//! Hostile kernel images and modules.

use unwind_sim_recordings::kernel::{self, ModuleLoad, OpenOptions};
use unwind_sim_unwind::image::{Bytes, Image};
use unwind_sim_unwind::orc::{Encoding, Index};

/// Maximum number of entries decoded one by one.
const ENTRIES_MAX: usize = 4096;
/// Address at which modules are loaded.
const MODULES: u64 = 0xffff_ffff_c000_0000;

/// A vmlinuz, a vmlinux or a module, depending on the bytes.
pub fn kernel_image(data: &[u8]) {
    let bytes = Bytes::from_vec(data.to_vec());
    if let Ok(module) =
        kernel::module_from_bytes("module.ko", bytes.clone(), &ModuleLoad::Text(MODULES))
    {
        assert!(module.range.start <= module.range.end);
        read_table(&module.image, None);
    }
    let Ok(kernel) = kernel::from_bytes("vmlinux", bytes, &OpenOptions::default()) else {
        return;
    };
    assert_eq!(kernel.encoding.is_some(), kernel.encoding_source.is_some());
    assert_eq!(kernel.symbols.is_empty(), kernel.symbol_source.is_none());
    assert_eq!(kernel.symbols.iter().count(), kernel.symbols.len());
    let returns: Vec<u64> = kernel.symbols.iter().take(64).map(|s| s.address).collect();
    kernel.kaslr(&returns);
    read_table(&kernel.image, kernel.encoding);
}

fn read_table(image: &Image, encoding: Option<Encoding>) {
    let Ok(Some(index)) = Index::new(image, encoding) else {
        return;
    };
    // Without an encoding, the order of entries at one address is unknown.
    let (Ok(table), Some(encoding)) = (index.table(), index.encoding()) else {
        return;
    };
    for position in 0..table.len().min(ENTRIES_MAX) {
        let (Some(ip), Some(stored)) = (table.ip(position), table.stored(position)) else {
            panic!("a position without an entry");
        };
        assert!(table.find(ip) >= Some(position), "its own address finds it");
        let _ = table.table().entry(stored, encoding.layout);
    }
}
