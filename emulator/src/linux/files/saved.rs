//! Saved files: a copy that shares what the original shared.
//!
//! Two descriptors can share an open file, two names an inode, and the ends of a pipe know each
//! other. The bytes of a file are not copied until the next write. Changes on the host are not
//! undone.

use super::description::{Description, Kind, OtherReferences, Shared, WeakShared};
use super::inode::{Budget, InodeRef};
use super::pipe::{self, PipeEnd, PipeRef};
use super::{Files, OverlayEntry, OwnFiles, Time};
use crate::linux::handle::Notes;
use crate::linux::streams::StreamsMark;
use crate::random::Random;
use hashbrown::HashMap;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A copy of all files.
#[derive(Debug)]
pub(in crate::linux) struct Saved {
    copied: CopiedFiles,
    inodes: u64,
    now: Time,
    streams: StreamsMark,
    random: Random,
}

/// The copies made so far, by the address of the original.
struct FileCopies {
    budget: Budget,
    texts: Budget,
    inodes: HashMap<*const (), InodeRef>,
    open: HashMap<*const (), Shared>,
    pipes: HashMap<*const (), PipeRef>,
    notes: Notes,
}

impl Files {
    /// Copies all files.
    pub(in crate::linux) fn save(&self, refs: OtherReferences<'_>) -> Saved {
        Saved {
            copied: self.copied_with(refs),
            inodes: self.inodes,
            now: self.now,
            streams: self.streams.mark(),
            random: self.random.clone(),
        }
    }

    /// Restores all files.
    pub(in crate::linux) fn restore(&mut self, saved: &Saved, refs: OtherReferences<'_>) {
        let Saved { copied, .. } = saved;
        let copied = copied.copy(refs);
        self.entries = copied.entries;
        self.copied = copied.copied;
        self.newly_copied.clear();
        (self.budget, self.texts) = (copied.budget, copied.texts);
        self.inodes = saved.inodes;
        self.own = copied.own;
        self.others = copied.others;
        self.ended = copied.ended;
        self.now = saved.now;
        self.streams.restore(&saved.streams);
        self.random = saved.random.clone();
    }

    /// A copy of everything. Writes to it do not affect the original, except in files of the host.
    pub(in crate::linux) fn copy(&self, refs: OtherReferences<'_>) -> Files {
        let copied = self.copied_with(refs);
        Files {
            host: self.host.clone(),
            contents: self.contents.clone(),
            allow_write: self.allow_write,
            entries: copied.entries,
            copied: copied.copied,
            newly_copied: Vec::new(),
            budget: copied.budget,
            texts: copied.texts,
            inodes: self.inodes,
            own: copied.own,
            others: copied.others,
            thread: self.thread,
            ended: copied.ended,
            owners: self.owners,
            missed: std::cell::Cell::default(),
            now: self.now,
            streams: self.streams.clone(),
            random: self.random.clone(),
        }
    }

    fn copied_with(&self, refs: OtherReferences<'_>) -> CopiedFiles {
        let parts = (&self.entries, &self.copied, &self.own, &self.others);
        copy(parts, &self.ended, [&self.budget, &self.texts], refs)
    }
}

/// Data that is copied together, so that shared parts stay shared.
#[derive(Debug)]
struct CopiedFiles {
    entries: BTreeMap<Vec<u8>, OverlayEntry>,
    copied: BTreeMap<(u64, u64), InodeRef>,
    own: OwnFiles,
    others: BTreeMap<u32, OwnFiles>,
    ended: BTreeSet<u32>,
    budget: Budget,
    texts: Budget,
}

impl CopiedFiles {
    fn copy(&self, refs: OtherReferences<'_>) -> CopiedFiles {
        let parts = (&self.entries, &self.copied, &self.own, &self.others);
        copy(parts, &self.ended, [&self.budget, &self.texts], refs)
    }
}

/// The names, the files of the host that were copied, and what belongs to processes.
type FilesView<'a> = (
    &'a BTreeMap<Vec<u8>, OverlayEntry>,
    &'a BTreeMap<(u64, u64), InodeRef>,
    &'a OwnFiles,
    &'a BTreeMap<u32, OwnFiles>,
);

fn copy(
    (entries, copied, own, others): FilesView<'_>,
    ended: &BTreeSet<u32>,
    budgets: [&Budget; 2],
    refs: OtherReferences<'_>,
) -> CopiedFiles {
    // Copies count against budgets of their own, or both would share what is left.
    let [budget, texts] = budgets.map(|budget| Budget::new(budget.left()));

    // What several names and descriptors share is copied once; the maps know the copies.
    let mut copies = FileCopies {
        budget: budget.clone(),
        texts: texts.clone(),
        inodes: HashMap::new(),
        open: HashMap::new(),
        pipes: HashMap::new(),
        notes: refs.notes,
    };

    let entries = entries.iter().map(|(path, entry)| {
        let entry = match entry {
            OverlayEntry::Removed => OverlayEntry::Removed,
            OverlayEntry::Node(inode) => OverlayEntry::Node(copies.inode(inode)),
        };
        (path.clone(), entry)
    });
    let entries = entries.collect();
    let copied = copied.iter();
    let copied = copied.map(|(&key, inode)| (key, copies.inode(inode)));
    let copied = copied.collect();

    let own = copies.own(own);
    let others = others.iter();
    let others = others.map(|(&number, files)| (number, copies.own(files)));
    let others = others.collect();

    // Open files that an object holds, such as those on their way through a socket.
    for open in refs.held {
        *open = copies.open(open);
    }

    // Weak references: one whose file is gone stays empty.
    for open in refs.watched {
        *open = match open.upgrade() {
            Some(original) => Rc::downgrade(&copies.open(&original)),
            None => WeakShared::new(),
        };
    }

    CopiedFiles {
        entries,
        copied,
        own,
        others,
        ended: ended.clone(),
        budget,
        texts,
    }
}

fn key<T>(shared: &Rc<T>) -> *const () {
    Rc::as_ptr(shared).cast()
}

impl FileCopies {
    fn own(&mut self, own: &OwnFiles) -> OwnFiles {
        let opening = own.opening.iter();
        let opening = opening.map(|(&thread, open)| (thread, self.open(open)));
        let opening: BTreeMap<u32, Shared> = opening.collect();
        OwnFiles {
            table: own.table.copy(|open| self.open(open)),
            cwd: own.cwd.clone(),
            root: own.root.clone(),
            program: own.program.clone(),
            umask: own.umask,
            identity: own.identity.clone(),
            process: own.process,
            threads: own.threads.clone(),
            opening,
        }
    }

    fn inode(&mut self, inode: &InodeRef) -> InodeRef {
        let budget = &self.budget;
        let copy = || Rc::new(RefCell::new(inode.borrow().copy(budget)));
        self.inodes.entry(key(inode)).or_insert_with(copy).clone()
    }

    fn open(&mut self, open: &Shared) -> Shared {
        // Descriptors that share an open file, and its position, share the copy, too.
        if let Some(copy) = self.open.get(&key(open)) {
            return copy.clone();
        }

        let description = open.borrow();

        // What belongs to the host stays shared; memory and pipes are copied.
        let kind = match &description.kind {
            Kind::Host(file) => Kind::Host(file.clone()),
            Kind::Memory(inode) => Kind::Memory(self.inode(inode)),
            Kind::Directory(names) => Kind::Directory(names.clone()),
            Kind::Path => Kind::Path,
            Kind::Pipe(end) => Kind::Pipe(self.pipe_end(end)),
            Kind::Stdin => Kind::Stdin,
            Kind::Stdout => Kind::Stdout,
            Kind::Stderr => Kind::Stderr,
            Kind::Device(device) => Kind::Device(*device),
            Kind::Text(text) => Kind::Text(text.copy(&self.texts)),
            Kind::ProcessMemory(space) => Kind::ProcessMemory(*space),
            Kind::ThreadName(task, text) => Kind::ThreadName(*task, text.clone()),
            Kind::Object(handle) => Kind::Object(handle.copy(&self.notes)),
        };

        let copy = Description {
            kind,
            flags: description.flags,
            position: description.position,
            path: description.path.clone(),
            lock: description.lock.as_ref().map(|lock| lock.copy(&self.notes)),
            mode: description.mode,
        };

        let copy = copy.shared();
        self.open.insert(key(open), copy.clone());
        copy
    }

    fn pipe_end(&mut self, end: &PipeEnd<InodeRef>) -> PipeEnd<InodeRef> {
        let copy = || pipe::copy(&end.pipe);
        let pipe = self.pipes.entry(key(&end.pipe)).or_insert_with(copy);
        let pipe = pipe.clone();
        let fifo = end.fifo.as_ref().map(|inode| {
            let inode = self.inode(inode);
            inode.borrow_mut().fifo.set(&pipe);
            inode
        });
        end.copy(&pipe, end.handle.copy(&self.notes), fifo)
    }
}
