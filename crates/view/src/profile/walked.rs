//! Adds walked stacks to a profile, with their frames symbolized.

use super::gathered::Profile;
use super::symbols::Lookup;
use super::tree::ROOT;
use std::sync::{Arc, Mutex};
use unwind_sim_judge::stacks::{Consumer, Taken};
use unwind_sim_perf_script::symbols::KernelSymbols;
use unwind_sim_unwind::image::Contents;
use unwind_sim_unwind::reason::Code;

/// Gathers the walks of one unwinder.
pub(super) struct WalkGatherer<'f> {
    pub(super) profile: Profile,
    lookup: Lookup<'f>,
    /// The number of the series of its first event.
    series: u32,
    /// Whether to add a frame that says why a walk stopped.
    reasons: bool,
    last: LastStack,
}

/// The last stack. The next one usually has the same outer frames.
#[derive(Debug)]
struct LastStack {
    /// The stamp and the number of mappings of its address space. What is cached for a space is
    /// valid until either changes.
    contents: Option<Contents>,
    space: u32,
    ids: (u32, u32),
    event: u32,
    name: Option<Arc<str>>,
    /// The number of its thread, and the parent node of the thread's stacks.
    thread: (u32, u32),
    /// The node under which `path` starts.
    root: u32,
    /// The pcs and their nodes, outermost first.
    path: Vec<(u64, u32)>,
}

impl<'f> WalkGatherer<'f> {
    /// Nothing is gathered yet. The kernel's symbols come from `files`.
    pub(super) fn new(
        profile: Profile,
        series: u32,
        reasons: bool,
        files: &'f Mutex<KernelSymbols>,
    ) -> WalkGatherer<'f> {
        WalkGatherer {
            profile,
            lookup: Lookup::new(files),
            series,
            reasons,
            last: LastStack {
                contents: None,
                space: 0,
                ids: (0, 0),
                event: 0,
                name: None,
                thread: (0, ROOT),
                root: ROOT,
                path: Vec::new(),
            },
        }
    }

    /// The node of a stack's innermost frame, or of the thread if there is none.
    fn node(&mut self, taken: &Taken<'_>) -> u32 {
        self.enter(taken);
        let WalkGatherer {
            profile,
            lookup,
            last,
            ..
        } = self;

        let mut root = last.thread.1;

        // The reason is the outermost frame, so that stacks that broke in the same way are
        // together.
        if self.reasons && taken.end != Code::RootReached {
            let (code, why) = (taken.end.as_str(), taken.end.description());
            let frame = profile.table.label(&format!("[stopped: {code} {why}]"));
            root = profile.tree.child(root, frame);
        }

        // What is known of the last stack's path holds only below the same root.
        if root != last.root {
            last.path.clear();
            last.root = root;
        }
        // The innermost frame is an instruction address, not a return address, and is never
        // compared. Nor is a stack with interrupted frames further out.
        let plain = taken.exact.len() <= 1;
        let outer = taken.pcs.get(1..).unwrap_or(&[]);
        let known = last.path.len().saturating_sub(1);
        let pairs = outer.iter().rev().zip(&last.path[..known]);
        let common = if plain {
            pairs.take_while(|(pc, (known, _))| *pc == known).count()
        } else {
            0
        };

        // From the first frame that differs on, the path is made anew.
        last.path.truncate(common);
        let mut node = last.path.last().map_or(root, |&(_, node)| node);

        let space = &*taken.task.space;

        // Outermost first, as the tree grows from the root.
        for at in (0..taken.pcs.len() - common).rev() {
            let frame = lookup.frame(&mut profile.table, space, last.space, taken.lookup(at));
            node = profile.tree.child(node, frame);
            last.path.push((taken.pcs[at], node));
        }

        // The kept path is compared by return addresses, so a path with exact ones cannot be kept.
        if !plain {
            last.path.clear();
        }

        // User space called the kernel, so the kernel's frames are further in.
        for at in (0..taken.kernel.len()).rev() {
            let (table, kernel) = (&mut profile.table, &taken.task.kernel);
            let frame = lookup.kernel_frame(table, kernel, taken.kernel_lookup(at));
            node = profile.tree.child(node, frame);
        }

        node
    }

    /// Forgets the last stack if it belongs to another thread or address space.
    fn enter(&mut self, taken: &Taken<'_>) {
        let last = &mut self.last;
        let task = taken.task;
        let event = taken.counted.map_or(0, |counted| counted.event);
        let contents = task.space.contents();

        // Equal names at different places are rare, and cost only a new path.
        let same_name = last
            .name
            .as_ref()
            .is_some_and(|name| Arc::ptr_eq(name, &task.name));

        // Everything that the node of a thread, or the meaning of an address, depends on.
        if last.contents == Some(contents)
            && same_name
            && last.ids == (task.pid, task.tid)
            && last.event == event
        {
            return;
        }

        last.event = event;
        last.path.clear();
        last.contents = Some(contents);
        last.space = self.lookup.space(contents);
        last.ids = (task.pid, task.tid);
        last.name = Some(task.name.clone());
        last.thread = self
            .profile
            .thread(task.pid, task.tid, self.series + event, &task.name);
    }
}

impl Consumer for WalkGatherer<'_> {
    fn part(&mut self, number: u64) {
        self.profile.part(number);
        // Makes the thread be entered again.
        self.last.name = None;
    }

    fn stack(&mut self, taken: &Taken<'_>) {
        let node = self.node(taken);
        let period = taken.counted.map_or(0, |counted| counted.period);
        (self.profile).add(self.last.thread.0, node, taken.time, period);
    }
}
