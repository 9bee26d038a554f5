//! A session with one client: packets in, answers out. Not here: bytes, checksums and streams.

use super::packets::{PACKET_BYTES_MAX, framed, refusal};
use super::target::GdbTarget;
use crate::debuggee::Debuggee;
use crate::error::Error;
use crate::interrupts::Interrupter;
use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{DisconnectReason, GdbStubBuilder};
use std::convert::Infallible;

/// The bytes around a body: `$`, `#` and the two digits of the sum.
const FRAME_BYTES: usize = 4;
/// The number of bytes of memory that an answer has at most. A client that asks for more gets fewer,
/// which the protocol allows, and asks again.
const MEMORY_BYTES_MAX: usize = 0x1000;

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client detached, or left.
    Detached,
    /// The client killed the program.
    Killed,
}

type Machine<'a> = GdbStubStateMachine<'static, GdbTarget<'a>, Answers>;

/// A session with one client.
pub struct Session<'a> {
    target: GdbTarget<'a>,
    machine: Option<Machine<'a>>,
    /// What the client has told of itself: the stub is told again if it starts anew.
    features: Option<Vec<u8>>,
    /// The thread that the client has chosen, likewise.
    thread: Option<Vec<u8>>,
}

/// What the stub has answered.
#[derive(Default, Debug)]
struct Answers(Vec<u8>);

impl Connection for Answers {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> Result<(), Infallible> {
        self.0.push(byte);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// What became of a packet.
enum Fed<'a> {
    Machine(Machine<'a>),
    /// The stub does not go on after a packet that it does not understand.
    Refused(String),
}

impl<'a> Session<'a> {
    /// Begins a session at the debuggee's state.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn new(debuggee: Debuggee<'a>) -> Result<Session<'a>, Error> {
        let mut session = Session {
            target: GdbTarget::new(debuggee),
            machine: None,
            features: None,
            thread: None,
        };
        session.restart()?;
        Ok(session)
    }

    /// The debuggee, when the session is over.
    pub fn into_debuggee(self) -> Debuggee<'a> {
        self.target.debuggee
    }

    /// Stops what runs, from another thread.
    pub fn interrupter(&self) -> Interrupter {
        self.target.debuggee.interrupter()
    }

    /// An interrupt came while nothing ran; its number is that of the interrupter.
    pub fn ignore_interrupt(&mut self, number: u64) {
        self.target.debuggee.ignore_interrupt(number);
    }

    /// Answers a packet, given without its frame. Returns the answer's bytes, and whether the session
    /// is over.
    ///
    /// # Errors
    /// If the recording cannot be read.
    pub fn packet(&mut self, body: &[u8]) -> Result<(Vec<u8>, Option<End>), Error> {
        if body.len() > PACKET_BYTES_MAX {
            return Ok((refusal("the packet is too long"), None));
        }
        match body.first() {
            // These write registers and memory (gdb's "Remote Protocol").
            Some(b'P' | b'G' | b'M' | b'X') => {
                let text = "the state is read-only: a run can be looked at, not changed";
                return Ok((refusal(text), None));
            }
            // `connection.rs` acknowledges packets where the client wants it; the stub never does.
            _ if body == b"QStartNoAckMode" => return Ok((framed(b"OK"), None)),
            _ => {}
        }

        let clipped = clipped(body);
        let body = clipped.as_deref().unwrap_or(body);
        let machine = match self.feed(body)? {
            Fed::Machine(machine) => machine,
            Fed::Refused(why) => {
                self.restart()?;
                return Ok((refusal(&why), None));
            }
        };
        // What the stub has understood is told again if it starts anew.
        if body.starts_with(b"qSupported") {
            self.features = Some(body.to_vec());
        } else if body.starts_with(b"Hg") {
            self.thread = Some(body.to_vec());
        }
        let (mut answers, end) = self.after(machine)?;

        // gdb waits for an answer to `vKill`, unlike `k`; the stub gives none to either.
        if end == Some(End::Killed) && body.starts_with(b"vKill") {
            answers = framed(b"OK");
        }
        Ok((answers, end))
    }

    /// Makes the way that a packet asked for, if it did.
    fn after(&mut self, machine: Machine<'a>) -> Result<(Vec<u8>, Option<End>), Error> {
        let mut end = None;
        let mut machine = match machine {
            GdbStubStateMachine::Running(mut inner) => {
                let (reason, said) = self.target.go()?;

                // gdb reads console packets only until the reply that says why the program stopped.
                inner.borrow_conn().0.extend(said);
                match inner.report_stop(&mut self.target, reason) {
                    Ok(machine) => machine,
                    Err(error) => return self.refused(&error.to_string()),
                }
            }
            // Nothing runs between two packets, so there is nothing to interrupt.
            GdbStubStateMachine::CtrlCInterrupt(inner) => {
                let none = None::<gdbstub::stub::MultiThreadStopReason<u64>>;
                match inner.interrupt_handled(&mut self.target, none) {
                    Ok(machine) => machine,
                    Err(error) => return self.refused(&error.to_string()),
                }
            }
            GdbStubStateMachine::Disconnected(inner) => {
                end = Some(match inner.get_reason() {
                    DisconnectReason::Kill => End::Killed,
                    _ => End::Detached,
                });
                inner.return_to_idle()
            }

            // The packet only asked for something.
            idle @ GdbStubStateMachine::Idle(_) => idle,
        };

        // Whatever the state, the stub may have written an answer.
        let answers = match &mut machine {
            GdbStubStateMachine::Idle(inner) => std::mem::take(&mut inner.borrow_conn().0),
            GdbStubStateMachine::Running(inner) => std::mem::take(&mut inner.borrow_conn().0),
            GdbStubStateMachine::CtrlCInterrupt(inner) => {
                std::mem::take(&mut inner.borrow_conn().0)
            }
            GdbStubStateMachine::Disconnected(inner) => std::mem::take(&mut inner.borrow_conn().0),
        };
        self.machine = Some(machine);
        Ok((answers, end))
    }

    fn refused(&mut self, why: &str) -> Result<(Vec<u8>, Option<End>), Error> {
        self.restart()?;
        Ok((refusal(why), None))
    }

    /// Gives the stub a packet.
    fn feed(&mut self, body: &[u8]) -> Result<Fed<'a>, Error> {
        let Some(mut machine) = self.machine.take() else {
            return Ok(Fed::Refused("the session is over".to_owned()));
        };
        for byte in framed(body) {
            let next = match machine {
                GdbStubStateMachine::Idle(inner) => inner.incoming_data(&mut self.target, byte),
                GdbStubStateMachine::Running(inner) => inner.incoming_data(&mut self.target, byte),
                other => Ok(other),
            };
            machine = match next {
                Ok(machine) => machine,
                Err(error) if error.is_target_error() => {
                    let text = error.to_string();
                    return match error.into_target_error() {
                        Some(error) => Err(error),
                        None => Ok(Fed::Refused(text)),
                    };
                }
                Err(error) => return Ok(Fed::Refused(error.to_string())),
            };
        }
        Ok(Fed::Machine(machine))
    }

    /// Starts the stub, or starts it again after a packet that ended it. It does not acknowledge
    /// packets; `connection.rs` does.
    fn restart(&mut self) -> Result<(), Error> {
        let stub = GdbStubBuilder::new(Answers::default())
            // The stub gets packets with their frames, as from a stream.
            .packet_buffer_size(PACKET_BYTES_MAX + FRAME_BYTES)
            .build();
        let Ok(stub) = stub else {
            return Ok(());
        };
        let Ok(machine) = stub.run_state_machine(&mut self.target) else {
            return Ok(());
        };
        self.machine = Some(machine);

        // A client that has not chosen a thread means the one that runs.
        let thread = self.thread.clone().unwrap_or_else(|| b"Hg0".to_vec());
        let told = [
            Some(b"QStartNoAckMode".to_vec()),
            self.features.clone(),
            Some(thread),
        ];
        let told = told.into_iter().flatten();
        for body in told {
            // What ended the stub is not told again.
            if let Fed::Machine(machine) = self.feed(&body)? {
                self.machine = Some(machine);
            } else {
                let told = (self.features.take(), self.thread.take());
                return match told {
                    (None, None) => Ok(()),
                    _ => self.restart(),
                };
            }
        }

        // The client has not asked for any of this, so it gets no answers.
        if let Some(GdbStubStateMachine::Idle(inner)) = &mut self.machine {
            inner.borrow_conn().0.clear();
        }
        Ok(())
    }
}

/// A request for less memory, if the packet asks for more than an answer may have.
fn clipped(body: &[u8]) -> Option<Vec<u8>> {
    let request = std::str::from_utf8(body.strip_prefix(b"m")?).ok()?;
    let (address, length) = request.split_once(',')?;
    let is_long = |digits: &str| match u64::from_str_radix(digits, 16) {
        Ok(length) => length > MEMORY_BYTES_MAX as u64,
        // A number that is too large for 64 bits.
        Err(_) => !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
    };
    is_long(length).then(|| format!("m{address},{MEMORY_BYTES_MAX:x}").into_bytes())
}
