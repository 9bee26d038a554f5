//! How a thread crashed, in the lines of its chains and of `doctor`.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::hex::hex;
use unwind_sim_recordings::crash::{Crash, Origin};

/// The signal that ended a program, as its core says.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CrashLine {
    /// The name, such as `SIGSEGV`.
    signal: &'static str,
    number: u32,
    /// `si_code`, which says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
    /// The name of the code, such as `SEGV_MAPERR`.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_name: Option<&'static str>,
    /// The address that the program accessed, or of the instruction (`si_addr`).
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The process that sent the signal (`si_pid`).
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<u32>,
}

impl From<Crash> for CrashLine {
    fn from(crash: Crash) -> CrashLine {
        let origin = crash.info.and_then(|info| info.origin);
        CrashLine {
            signal: crash.signal_name(),
            number: crash.signal,
            code: crash.info.map(|info| info.code),
            code_name: crash.code_name(),
            address: match origin {
                Some(Origin::Address(address)) => Some(hex(address)),
                _ => None,
            },
            sender: match origin {
                Some(Origin::Process(pid)) => Some(pid),
                _ => None,
            },
        }
    }
}

/// The thread that crashed, in `doctor`'s last line.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CrashedLine {
    /// The number of its sample.
    sample: u64,
    tid: u32,
    #[serde(flatten)]
    crash: CrashLine,
}

impl CrashedLine {
    /// For a sample's thread.
    pub(super) fn new(sample: u64, crash: Crash) -> CrashedLine {
        CrashedLine {
            sample,
            tid: crash.tid,
            crash: crash.into(),
        }
    }
}
