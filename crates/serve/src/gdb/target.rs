//! What `gdbstub` asks of a target: registers, memory, threads, breakpoints.

use super::arch::{AllRegisters, Amd64, DESCRIPTION, Number};
use super::files;
use crate::debuggee::{Debuggee, MainFile, Motion};
use crate::error::Error;
use gdbstub::common::Tid;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{MultiThreadBase, MultiThreadResumeOps};
use gdbstub::target::ext::base::single_register_access::{
    SingleRegisterAccess, SingleRegisterAccessOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, HwWatchpoint, HwWatchpointOps,
    SwBreakpoint, SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::section_offsets::SectionOffsetsOps;
use gdbstub::target::ext::target_description_xml_override::{
    TargetDescriptionXmlOverride, TargetDescriptionXmlOverrideOps,
};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::ext::{auxv::AuxvOps, exec_file::ExecFileOps, monitor_cmd::MonitorCmdOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use std::collections::BTreeSet;
use unwind_sim_judge::states::{Access, Stops, Watch};

/// Linux's numbers of errors, which gdb shows.
const ESRCH: u8 = 3;
const EFAULT: u8 = 14;
const EROFS: u8 = 30;

/// The maximum number of breakpoints of each kind, and of watchpoints.
const BREAKPOINTS_MAX: usize = 4096;
const WATCHPOINTS_MAX: usize = 64;

/// gdb's number for a thread that Linux numbers 0: the idle task. gdb takes 0 for any thread, and has an int
/// for the number of one. Linux gives no thread this number (`PID_MAX_LIMIT`).
const IDLE: u32 = 1 << 22;

/// A debuggee as `gdbstub` sees it.
pub(super) struct GdbTarget<'a> {
    pub(super) debuggee: Debuggee<'a>,
    /// Software and hardware breakpoints; they differ only for gdb.
    breakpoints: [BTreeSet<u64>; 2],
    watchpoints: Vec<Watch>,
    /// The step that the next resumption makes.
    pub(super) step: Option<(u32, std::ops::Range<u64>)>,
    /// The way that was asked for.
    pub(super) motion: Option<Motion>,
    /// The program's file, if there is one.
    pub(super) main_file: Option<MainFile>,
}

impl<'a> GdbTarget<'a> {
    pub(super) fn new(mut debuggee: Debuggee<'a>) -> GdbTarget<'a> {
        debuggee.begin();
        GdbTarget {
            main_file: debuggee.main_file(),
            debuggee,
            breakpoints: Default::default(),
            watchpoints: Vec::new(),
            step: None,
            motion: None,
        }
    }

    /// What is stopped for.
    pub(super) fn stops(&self) -> Stops {
        let [software, hardware] = &self.breakpoints;
        Stops {
            addresses: software.union(hardware).copied().collect(),
            watches: self.watchpoints.clone(),
            goal: None,
        }
    }

    fn add(&mut self, kind: usize, address: u64) -> bool {
        let all = &mut self.breakpoints[kind];
        let has_room = all.len() < BREAKPOINTS_MAX || all.contains(&address);
        if has_room {
            all.insert(address);
        }
        has_room
    }

    fn remove(&mut self, kind: usize, address: u64) -> bool {
        self.breakpoints[kind].remove(&address)
    }
}

/// gdb's number of a thread.
pub(super) fn gdb_tid(tid: u32) -> Tid {
    let number = if tid == 0 { IDLE } else { tid };
    Tid::MIN.saturating_add(number as usize - 1)
}

/// Linux's number of a thread.
pub(super) fn linux_tid(tid: Tid) -> u32 {
    let number = u32::try_from(tid.get()).unwrap_or(IDLE);
    if number == IDLE { 0 } else { number }
}

impl Target for GdbTarget<'_> {
    type Arch = Amd64;
    type Error = Error;

    fn base_ops(&mut self) -> BaseOps<'_, Amd64, Error> {
        BaseOps::MultiThread(self)
    }

    fn guard_rail_implicit_sw_breakpoints(&self) -> bool {
        true
    }

    // Answers are read by people and scripts, too.
    fn use_rle(&self) -> bool {
        false
    }

    // lldb reads the target description as well.
    fn use_lldb_register_info(&self) -> bool {
        false
    }

    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }

    fn support_section_offsets(&mut self) -> Option<SectionOffsetsOps<'_, Self>> {
        // Of a program gdb finds out by itself, with the auxiliary vector.
        let is_known = self
            .main_file
            .as_ref()
            .is_some_and(|file| file.bias.is_some());
        is_known.then_some(self as SectionOffsetsOps<'_, Self>)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        match self.main_file {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        if self.debuggee.is_program() {
            Some(self)
        } else {
            None
        }
    }
}

impl MultiThreadBase for GdbTarget<'_> {
    fn read_registers(&mut self, regs: &mut AllRegisters, tid: Tid) -> TargetResult<(), Self> {
        let known = self.debuggee.registers(linux_tid(tid));
        let known = known.ok_or(TargetError::Errno(ESRCH))?;
        *regs = AllRegisters::of(&known);
        Ok(())
    }

    fn write_registers(&mut self, _: &AllRegisters, _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(EROFS))
    }

    fn support_single_register_access(&mut self) -> Option<SingleRegisterAccessOps<'_, Tid, Self>> {
        Some(self)
    }

    fn read_addrs(&mut self, address: u64, data: &mut [u8], _: Tid) -> TargetResult<usize, Self> {
        match self.debuggee.read(address, data) {
            Ok(0) => Err(TargetError::Errno(EFAULT)),
            Ok(len) => Ok(len),
            Err(error) => Err(TargetError::Fatal(error)),
        }
    }

    fn write_addrs(&mut self, _: u64, _: &[u8], _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(EROFS))
    }

    fn list_active_threads(&mut self, each: &mut dyn FnMut(Tid)) -> Result<(), Error> {
        for thread in self.debuggee.threads() {
            each(gdb_tid(thread.tid));
        }
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl SingleRegisterAccess<Tid> for GdbTarget<'_> {
    fn read_register(
        &mut self,
        tid: Tid,
        number: Number,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let known = self.debuggee.registers(linux_tid(tid));
        let known = known.ok_or(TargetError::Errno(ESRCH))?;
        // An unknown register has no bytes.
        let bytes = AllRegisters::of(&known).bytes(number).unwrap_or_default();
        let to = buf.get_mut(..bytes.len());
        to.ok_or(TargetError::NonFatal)?.copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write_register(&mut self, _: Tid, _: Number, _: &[u8]) -> TargetResult<(), Self> {
        Err(TargetError::Errno(EROFS))
    }
}

impl ThreadExtraInfo for GdbTarget<'_> {
    fn thread_extra_info(&self, tid: Tid, buf: &mut [u8]) -> Result<usize, Error> {
        let threads = self.debuggee.threads();
        let thread = threads.iter().find(|thread| gdb_tid(thread.tid) == tid);
        let about = thread.map_or("", |thread| thread.about.as_str());
        Ok(files::part(about.as_bytes(), 0, buf.len(), buf))
    }
}

impl TargetDescriptionXmlOverride for GdbTarget<'_> {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        if annex != b"target.xml" {
            return Err(TargetError::NonFatal);
        }
        Ok(files::part(DESCRIPTION.as_bytes(), offset, length, buf))
    }
}

impl Breakpoints for GdbTarget<'_> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl SwBreakpoint for GdbTarget<'_> {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.add(0, address))
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove(0, address))
    }
}

impl HwBreakpoint for GdbTarget<'_> {
    fn add_hw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.add(1, address))
    }

    fn remove_hw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove(1, address))
    }
}

/// What is watched, if the range is one.
fn watch(address: u64, len: u64, kind: WatchKind) -> Option<Watch> {
    let end = address.checked_add(len).filter(|&end| end > address)?;
    Some(Watch {
        range: address..end,
        access: match kind {
            WatchKind::Write => Access::Write,
            WatchKind::Read => Access::Read,
            WatchKind::ReadWrite => Access::Any,
        },
    })
}

impl HwWatchpoint for GdbTarget<'_> {
    fn add_hw_watchpoint(
        &mut self,
        address: u64,
        len: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        // Between samples nothing is known of accesses.
        let has_room = self.watchpoints.len() < WATCHPOINTS_MAX && self.debuggee.is_program();
        let Some(watch) = watch(address, len, kind).filter(|_| has_room) else {
            return Ok(false);
        };
        self.watchpoints.push(watch);
        Ok(true)
    }

    fn remove_hw_watchpoint(
        &mut self,
        address: u64,
        len: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        let wanted = watch(address, len, kind);
        let at = self
            .watchpoints
            .iter()
            .position(|w| Some(w) == wanted.as_ref());
        Ok(at.map(|at| self.watchpoints.remove(at)).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::{gdb_tid, linux_tid};

    #[test]
    fn gdb_can_name_each_thread() {
        for tid in [0, 1, 4_194_303] {
            let number = gdb_tid(tid);
            assert!(i32::try_from(number.get()).is_ok_and(|number| number > 0));
            assert_eq!(linux_tid(number), tid);
        }
    }
}
