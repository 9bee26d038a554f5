//! The processes of a recording and their mappings, updated by events.

use crate::model::Event;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use unwind_sim_unwind::image::{AddressSpace, Image, Mapping};

/// The processes alive at one moment of a recording.
///
/// Address spaces are copied on write: a holder ([`World::shared_space`], a copy of the world, a
/// forked child) keeps an unchanged one, and the changed one gets a new identity.
#[derive(Clone, Debug, Default)]
pub struct World {
    processes: BTreeMap<u32, Process>,
    names: BTreeMap<(u32, u32), String>,
}

#[derive(Clone, Debug, Default)]
struct Process {
    space: Arc<AddressSpace>,
    /// Threads known to be alive.
    threads: BTreeSet<u32>,
    /// It has executed a program while it was recorded.
    has_executed: bool,
}

static NOTHING: LazyLock<Arc<AddressSpace>> = LazyLock::new(Arc::default);

impl World {
    /// No processes.
    pub fn new() -> World {
        World::default()
    }

    /// Applies `event`, whose image is one of `images`.
    pub fn apply(&mut self, event: &Event, images: &[Arc<Image>]) {
        match event {
            Event::Map {
                pid,
                range,
                bias,
                image,
                name,
            } => {
                let image = image.and_then(|i| images.get(i.0 as usize)).cloned();
                let mapping = Mapping {
                    range: range.clone(),
                    bias: *bias,
                    image,
                    name: name.clone(),
                };
                self.space_mut(*pid).map(mapping);
            }
            Event::Unmap { pid, range } => self.space_mut(*pid).unmap(range.clone()),
            Event::Exec { pid } => {
                let process = self.process(*pid);
                process.space = Arc::default();
                process.has_executed = true;
                // All other threads are gone; the remaining one has the process's number.
                process.threads = BTreeSet::from([*pid]);
                self.names.retain(|(of, tid), _| of != pid || tid == pid);
            }
            Event::Fork {
                pid,
                tid,
                parent_pid,
            } => {
                // A new thread has the address space of its process.
                if pid != parent_pid {
                    let parent = self.processes.get(parent_pid);
                    // Shared until one of the two changes it.
                    let space = parent.map(|p| p.space.clone()).unwrap_or_default();
                    self.processes.insert(
                        *pid,
                        Process {
                            space,
                            ..Process::default()
                        },
                    );
                }
                self.process(*pid).threads.insert(*tid);
            }
            Event::Exit { pid, tid } => self.exit(*pid, *tid),
            // A thread from before the recording may first be seen by its name.
            Event::Comm { pid, tid, name } => {
                self.process(*pid).threads.insert(*tid);
                self.names.insert((*pid, *tid), name.clone());
            }
        }
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.entry(pid).or_default()
    }

    fn space_mut(&mut self, pid: u32) -> &mut AddressSpace {
        Arc::make_mut(&mut self.process(pid).space)
    }

    /// A process ends with its last thread. Threads that started before the recording are unknown:
    /// they are assumed to end with the thread that has the process's number.
    fn exit(&mut self, pid: u32, tid: u32) {
        self.names.remove(&(pid, tid));
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let known = process.threads.remove(&tid);
        if process.threads.is_empty() && (known || tid == pid) {
            self.processes.remove(&pid);
        }
    }

    /// The mappings of process `pid`; empty if there is no such process.
    pub fn space(&self, pid: u32) -> &AddressSpace {
        self.processes.get(&pid).map_or(&NOTHING, |p| &p.space)
    }

    /// Like [`World::space`], but a snapshot: later events do not change it.
    pub fn shared_space(&self, pid: u32) -> Arc<AddressSpace> {
        let space = self.processes.get(&pid).map_or(&*NOTHING, |p| &p.space);
        space.clone()
    }

    /// Whether process `pid` has executed a program while it was recorded.
    pub fn has_executed(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|p| p.has_executed)
    }

    /// The name of a thread, or else that of its process's first thread.
    pub fn name(&self, pid: u32, tid: u32) -> Option<&str> {
        let name = self
            .names
            .get(&(pid, tid))
            .or_else(|| self.names.get(&(pid, pid)));
        name.map(String::as_str)
    }

    /// The process IDs, in ascending order.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ImageIndex;
    use unwind_sim_unwind::image::ImageParts;

    fn map(pid: u32, start: u64, image: Option<u32>) -> Event {
        Event::Map {
            pid,
            range: start..start + 0x1000,
            bias: 0,
            image: image.map(ImageIndex),
            name: "a".into(),
        }
    }

    fn fork(pid: u32, tid: u32, parent_pid: u32) -> Event {
        Event::Fork {
            pid,
            tid,
            parent_pid,
        }
    }

    fn comm(pid: u32, tid: u32, name: &str) -> Event {
        Event::Comm {
            pid,
            tid,
            name: name.into(),
        }
    }

    fn world(events: &[Event]) -> World {
        let images = [Arc::new(Image::new(ImageParts::default()))];
        let mut world = World::new();
        events.iter().for_each(|event| world.apply(event, &images));
        world
    }

    fn mapped(world: &World, pid: u32) -> Vec<u64> {
        world
            .space(pid)
            .mappings()
            .iter()
            .map(|m| m.range.start)
            .collect()
    }

    #[test]
    fn mappings_come_and_go() {
        let unmap = Event::Unmap {
            pid: 1,
            range: 0x1000..0x2000,
        };
        let world = world(&[map(1, 0x1000, Some(0)), map(1, 0x5000, Some(9)), unmap]);
        assert_eq!(mapped(&world, 1), [0x5000]);
        assert!(
            world.space(1).find(0x5000).unwrap().image.is_none(),
            "there is no image 9"
        );
        assert!(mapped(&world, 2).is_empty());
        assert_eq!(world.pids().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_process_inherits_and_a_thread_shares() {
        let begin = [map(1, 0x1000, Some(0)), fork(2, 2, 1), fork(1, 3, 1)];
        let later = [map(1, 0x3000, None), map(2, 0x5000, None)];
        let both = world(&[begin.as_slice(), &later].concat());
        assert_eq!(mapped(&both, 1), [0x1000, 0x3000]);
        assert_eq!(mapped(&both, 2), [0x1000, 0x5000]);
        assert!(both.space(2).find(0x1000).unwrap().image.is_some());
        assert_ne!(both.space(1).stamp(), both.space(2).stamp());
        let exec = world(&[begin.as_slice(), &[Event::Exec { pid: 2 }]].concat());
        assert!(exec.has_executed(2) && !exec.has_executed(1) && !exec.has_executed(9));
        assert_eq!((mapped(&exec, 1).len(), mapped(&exec, 2).len()), (1, 0));
        assert!(
            mapped(&world(&[fork(5, 5, 4)]), 5).is_empty(),
            "of an unknown parent"
        );
    }

    #[test]
    fn a_process_ends_with_its_last_thread() {
        let exit = |tid| Event::Exit { pid: 1, tid };
        let begin = [map(1, 0x1000, None), comm(1, 1, "main"), fork(1, 2, 1)];
        let one = world(&[begin.as_slice(), &[exit(1)]].concat());
        assert_eq!(mapped(&one, 1), [0x1000], "thread 2 still lives");
        let none = world(&[begin.as_slice(), &[exit(1), exit(2)]].concat());
        assert_eq!(none.pids().count(), 0);
        // Threads from before the recording are unknown; one of them exiting ends nothing.
        let unknown = world(&[map(1, 0x1000, None), exit(9)]);
        assert_eq!(mapped(&unknown, 1), [0x1000]);
        assert_eq!(
            world(&[map(1, 0x1000, None), exit(1), exit(1)])
                .pids()
                .count(),
            0
        );
    }

    #[test]
    fn threads_have_names() {
        let events = [comm(1, 1, "main"), comm(1, 2, "worker"), fork(1, 3, 1)];
        let named = world(&events);
        let names = [1, 2, 3].map(|tid| named.name(1, tid));
        assert_eq!(names, [Some("main"), Some("worker"), Some("main")]);
        assert_eq!(named.name(2, 2), None);
        let ended = world(&[events.as_slice(), &[Event::Exit { pid: 1, tid: 2 }]].concat());
        assert_eq!(ended.name(1, 2), Some("main"));
        let exec = world(&[events.as_slice(), &[Event::Exec { pid: 1 }]].concat());
        assert_eq!(
            (exec.name(1, 2), exec.name(1, 1)),
            (Some("main"), Some("main"))
        );
    }
}
