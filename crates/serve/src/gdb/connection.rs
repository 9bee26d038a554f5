//! A client's streams: one thread reads, so that an interrupt stops what runs, and this one answers.

use super::packets::{Event, Unframer, refusal};
use super::session::{End, Session};
use crate::debuggee::Debuggee;
use crate::error::Error;
use crate::interrupts::Interrupter;
use std::io::{Read, Write};

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// The number of packets that wait to be answered, at most. Then nothing more is read.
const WAITING_MAX: usize = 16;
/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// What the reading thread sends.
enum Received {
    Event(Event),
    /// An interrupt, with its number.
    Interrupt(u64),
}

/// Serves one client: `from` is what it sends, `to` what it reads.
///
/// # Errors
/// If the recording cannot be read, or nothing can be written to the client.
pub fn serve<'a>(
    debuggee: Debuggee<'a>,
    from: impl Read + Send + 'static,
    to: &mut dyn Write,
) -> Result<(Debuggee<'a>, End), Error> {
    let mut session = Session::new(debuggee)?;
    let interrupter = session.interrupter();
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let reader = thread::Builder::new().name("gdb client".to_owned());
    reader
        .spawn(move || read(from, &interrupter, &sender))
        .map_err(Error::Thread)?;

    let end = answer(&mut session, &receiver, to)?;
    Ok((session.into_debuggee(), end))
}

/// Reads until the client leaves or nobody waits for it.
fn read(mut from: impl Read, interrupter: &Interrupter, to: &SyncSender<Received>) {
    let mut unframer = Unframer::default();
    let mut buf = [0; READ_BYTES];
    loop {
        let len = match from.read(&mut buf) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for event in buf[..len].iter().filter_map(|byte| unframer.push(*byte)) {
            let received = match event {
                Event::Interrupt => Received::Interrupt(interrupter.interrupt()),
                event => Received::Event(event),
            };
            if to.send(received).is_err() {
                return;
            }
        }
    }
    // What runs for a client that has left ends.
    interrupter.interrupt();
}

/// Answers until the session is over.
fn answer(
    session: &mut Session<'_>,
    from: &Receiver<Received>,
    to: &mut dyn Write,
) -> Result<End, Error> {
    let mut acknowledges = true;
    let mut last = Vec::new();
    for received in from {
        let event = match received {
            // What it was meant to stop has ended by now, and the next search must not end by it.
            Received::Interrupt(number) => {
                session.ignore_interrupt(number);
                continue;
            }
            Received::Event(event) => event,
        };

        let mut end = None;
        match event {
            Event::Packet(body) => {
                // A client that gets no acknowledgement soon sends the packet again.
                if acknowledges && !send(to, b"+")? {
                    return Ok(End::Detached);
                }
                (last, end) = session.packet(&body)?;
                if body == b"QStartNoAckMode" {
                    acknowledges = false;
                }
            }
            // It is sent again if that is agreed.
            Event::Broken(_) if acknowledges => last = b"-".to_vec(),
            Event::Broken(why) => last = refusal(why),
            // The last answer did not arrive whole, and is sent once more.
            Event::Again if acknowledges => {}
            Event::Again | Event::Interrupt => continue,
        }

        if !send(to, &last)? {
            return Ok(End::Detached);
        }
        if let Some(end) = end {
            return Ok(end);
        }
    }
    Ok(End::Detached)
}

/// Whether the client still reads.
fn send(to: &mut dyn Write, bytes: &[u8]) -> Result<bool, Error> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Ok(()) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
