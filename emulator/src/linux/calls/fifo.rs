//! Opening FIFOs that were made inside the machine.
//!
//! Source: Linux 6.12 `fs/pipe.c` (`fifo_open`).

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Files, InodeRef, Kind, Node, PipeEnd, PipeRef, ResolvedPath, Shared, o};
use crate::linux::objects::Object;

impl Kernel {
    /// Opens what a path names, if it is a FIFO in memory; `None` otherwise. If it must wait for
    /// the other end, the open file is kept until [`Kernel::opening`] takes it.
    pub(super) fn open_fifo_file(
        &mut self,
        resolved: &ResolvedPath,
        flags: u32,
    ) -> Option<Answer<Shared>> {
        let Node::Memory(inode) = &resolved.node else {
            return None;
        };
        let pipe = Files::pipe_of(inode).filter(|_| flags & o::PATH == 0)?;
        Some(self.open_fifo(&pipe, inode, resolved, flags))
    }

    fn open_fifo(
        &mut self,
        pipe: &PipeRef,
        inode: &InodeRef,
        resolved: &ResolvedPath,
        flags: u32,
    ) -> Answer<Shared> {
        self.files.may_open(resolved, flags)?;
        self.may_add_objects(1)?;

        let can = [
            flags & o::ACCMODE != o::WRONLY,
            flags & o::ACCMODE != o::RDONLY,
        ];

        // fifo(7): without the other end, `open` waits; with `O_NONBLOCK`, a reader succeeds at
        // once and a writer fails.
        let is_alone = match can {
            [true, true] => false,
            [reads, _] => pipe.borrow().open[usize::from(reads)] == 0,
        };
        let waits = is_alone && flags & o::NONBLOCK == 0;
        if is_alone && can[1] && !waits {
            return Err(Errno::ENXIO);
        }

        let handle = self.objects.add(Object::Pipe);
        let mut end = PipeEnd::new(pipe, can, handle, Some(inode.clone()));
        if is_alone {
            end.alone_since = Some(pipe.borrow().opened[usize::from(can[0])]);
        }

        let open = Files::description(Kind::Pipe(end), flags, &resolved.path).shared();
        // The open file is kept meanwhile: the other end must find it.
        if waits {
            self.files.own.opening.insert(self.files.thread, open);
            return self.opening().unwrap_or(Err(Errno::EINTR));
        }
        Ok(open)
    }

    /// The end of a FIFO that the running thread opens, once the other end was opened; `None` if
    /// it opens none.
    ///
    /// # Errors
    /// [`Errno::WAITS`] until then, or that of a signal.
    pub(super) fn opening(&mut self) -> Option<Answer<Shared>> {
        let thread = self.files.thread;
        let open = self.files.own.opening.get(&thread)?.clone();
        let has_other = match &open.borrow().kind {
            Kind::Pipe(end) => end.was_joined(),
            _ => true,
        };
        let answer = if has_other {
            Ok(open)
        } else {
            self.wait_or_restart().map(|_| open)
        };
        if answer.as_ref().err() != Some(&Errno::WAITS) {
            self.files.own.opening.remove(&thread);
        }
        Some(answer)
    }
}
