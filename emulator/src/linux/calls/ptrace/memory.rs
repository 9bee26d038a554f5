//! `ptrace`: words of the memory of another process.

use crate::address_space::SpaceId;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::task::Task;

impl Kernel {
    fn space_of_task(&self, task: Task) -> Answer<SpaceId> {
        let process = self.process(task.process);
        process.map(|process| process.space).ok_or(Errno::ESRCH)
    }

    pub(super) fn peek_word(&mut self, task: Task, at: u64, to: u64) -> Answer {
        let space = self.space_of_task(task)?;
        let mut bytes = [0; 8];
        if self.peek_space(space, at, &mut bytes) < bytes.len() {
            return Err(Errno::EIO);
        }
        self.put(to, &bytes)?;
        Ok(0)
    }

    pub(super) fn poke_word(&mut self, task: Task, at: u64, word: u64) -> Answer {
        let space = self.space_of_task(task)?;
        let bytes = word.to_le_bytes();
        if self.poke_space(space, at, &bytes) < bytes.len() {
            Err(Errno::EIO)
        } else {
            Ok(0)
        }
    }
}
