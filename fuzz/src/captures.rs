//! Hostile captures of a kernel whose image is a seed of `kernel_image`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_recordings::import::{ImportItem, ImportOptions, import_bytes};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::model::{Item, Sample};
use unwind_sim_recordings::trace::{Meta, Trace, TraceWriter};
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::kernel::perf::{Begin, states};
use unwind_sim_unwind::kernel::trace::{show, stack_walk, stack_walk_reliable};
use unwind_sim_unwind::kernel::{Code, FindCache, Kernel, UnwinderKind, Version};
use unwind_sim_unwind::start::Variant;

/// Maximum number of states, lines and addresses of a walk.
const MAX: usize = 300;

/// Imports a capture, writes it to a trace, reads that back, and walks it in every way.
pub fn capture(data: &[u8]) {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/kernel_image/vmlinux");
    let options = ImportOptions {
        kernel: Some(InputFile::open(&kernel).expect("a seed")),
        ..ImportOptions::default()
    };

    let (mut images, mut world) = (Vec::new(), World::new());
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).expect("it is in memory");
    let mut samples = Vec::new();
    let imported = import_bytes(Arc::new(data.to_vec()), &options, &mut |item| {
        match item {
            ImportItem::Image { image, .. } => {
                writer.add_image(&image).expect("it fits");
                images.push(image);
            }
            ImportItem::Item(item) => {
                // A capture may hold what a trace cannot; the rest is still written.
                let written = writer.item(&item).is_ok();
                match item {
                    Item::Event(event) => world.apply(&event, &images),
                    Item::Sample(sample) => {
                        walk(&sample, &world);
                        if written {
                            samples.push(sample.into_owned());
                        }
                    }
                }
            }
        }
        ControlFlow::Continue(())
    });

    // What follows compares what was written, and an import may refuse its file.
    if imported.is_err() {
        return;
    }

    let bytes = writer.finish().expect("it is in memory");
    let trace = Trace::from_bytes(bytes).expect("we wrote it");
    for (number, sample) in samples.iter().enumerate() {
        let read = trace.sample(number as u64).expect("we wrote it");
        assert_eq!(
            (read.kernel, read.truth),
            (sample.kernel.clone(), sample.truth.clone())
        );
    }
}

fn walk(sample: &Sample<'_>, world: &World) {
    let Some(kernel) = &sample.kernel else { return };
    let memory = sample.memory();

    // The walk differs between these kernels.
    for name in ["4.14", "6.1", "7.1"] {
        let version = Version::from_name(name).expect("a version");
        let code = Code::new(world.space(0), version, None);
        let kernel = Kernel {
            code: &code,
            task: &kernel.task,
            memory: &memory,
        };

        for variant in Variant::ALL {
            let Ok(start) = sample.regs.start(variant, false, &memory) else {
                continue;
            };
            let Ok(begin) = Begin::new(kernel, &start) else {
                continue;
            };

            for kind in UnwinderKind::ALL {
                // One cache for all calls of a kind, as a program has it, compared with a new one.
                let finds = &mut FindCache::default();
                let (all, skipped) = states(kind, kernel, begin, MAX, finds);
                assert!(skipped < all.len());
                let fresh = states(kind, kernel, begin, MAX, &mut FindCache::default());
                assert_eq!((all, skipped), fresh, "a cache changes nothing");
                let addresses = stack_walk(kind, kernel, begin, MAX, finds);
                assert!(addresses.len() <= MAX + 1);

                // These must only end, and not panic.
                let _ = stack_walk_reliable(kind, kernel, begin, MAX, finds);
                let _ = show(kind, kernel, begin, finds);
            }
        }
    }
}
