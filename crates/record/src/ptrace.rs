//! Records with ptrace: writes what the host observes to a trace.

use super::{TraceRecorder, locate};
use std::io::Write;
use std::sync::Arc;
use unwind_sim_host::{
    Event, Mapping, Next, ProcessMemory, Recorder, RecorderError, Sample, StackRole,
};
use unwind_sim_recordings::files::{FinderOptions, ImageFinder, MappingRequest};
use unwind_sim_recordings::model::{self, Region, RegionRole};
use unwind_sim_unwind::image::{Image, Owner};

/// Maximum memory read for an image without a file (the vdso), bytes.
const MEMORY_IMAGE_MAX: u64 = 1 << 24;

/// Where to find the files of processes running on this machine.
pub fn finder_options() -> FinderOptions {
    FinderOptions {
        live: true,
        ..FinderOptions::system()
    }
}

fn request(mapping: &Mapping) -> MappingRequest<'_> {
    MappingRequest {
        pid: mapping.pid as u32,
        name: &mapping.name,
        range: mapping.range.clone(),
        file_offset: mapping.offset,
        executable: mapping.execute,
        build_id: &[],
    }
}

fn find_image(
    finder: &mut ImageFinder,
    mapping: &Mapping,
    memory: Option<&ProcessMemory>,
) -> (Option<Arc<Image>>, u64) {
    let length = mapping.range.end - mapping.range.start;
    if mapping.name == "[vdso]" && length <= MEMORY_IMAGE_MAX {
        let mut bytes = vec![0; length as usize];
        let read = memory.map_or(0, |m| m.read(mapping.range.start, &mut bytes));
        bytes.truncate(read);
        let owner: Owner = Arc::new(bytes);
        if let Some((image, bias)) = finder.memory_image("[vdso]", mapping.range.start, owner) {
            return (Some(image), bias);
        }
    }
    finder.mapping_for(&request(mapping))
}

impl<W: Write> Recorder for TraceRecorder<'_, W> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), RecorderError> {
        let event = match event {
            Event::Map {
                pid,
                mapping,
                memory,
            } => {
                // The vDSO has no file: its image is in the program's memory.
                let found = find_image(&mut self.finder, mapping, Some(memory));
                let request = MappingRequest {
                    pid: *pid,
                    ..request(mapping)
                };
                return Ok(self.map(&request, found)?);
            }
            Event::Unmap { pid, range } => model::Event::Unmap {
                pid: *pid,
                range: range.clone(),
            },
            Event::Exec { pid } => model::Event::Exec { pid: *pid },
            Event::Fork {
                pid,
                tid,
                parent_pid,
            } => model::Event::Fork {
                pid: *pid,
                tid: *tid,
                parent_pid: *parent_pid,
            },
            Event::Exit { pid, tid } => model::Event::Exit {
                pid: *pid,
                tid: *tid,
            },
            Event::Comm { pid, tid, name } => model::Event::Comm {
                pid: *pid,
                tid: *tid,
                name: (*name).to_owned(),
            },
            // The host may report more than a trace holds.
            _ => return Ok(()),
        };
        Ok(TraceRecorder::event(self, &event)?)
    }

    fn sample(&mut self, sample: Sample) -> Result<Next, RecorderError> {
        let regions = sample.stacks.into_iter().map(|piece| Region {
            role: match piece.role {
                StackRole::Stack => RegionRole::Stack,
                StackRole::OtherStack => RegionRole::OtherStack,
            },
            bounds: piece.bounds,
            // Only stacks of the kernel have links.
            next_sp: 0,
            address: piece.address,
            bytes: piece.bytes.into(),
        });

        let taken = model::Sample {
            pid: sample.pid,
            tid: sample.tid,
            time: sample.time,
            regs: sample.regs,
            regions: regions.collect(),
            truth: sample.truth,
            recorded: Vec::new(),
            branches: Vec::new(),
            // ptrace does not show the stacks of the kernel.
            kernel: None,
            process_memory: None,
        };

        TraceRecorder::sample(self, &taken, sample.point)?;
        Ok(Next::Go)
    }

    fn locate(&mut self, mapping: &Mapping, name: &str) -> Vec<u64> {
        let (image, bias) = find_image(&mut self.finder, mapping, None);
        locate(image.as_deref(), bias, &mapping.range, name)
    }
}
