//! An editor's streams: one thread reads, so that `pause` stops what runs, and this one answers.

use super::launch::Launch;
use super::messages::{Received, Unframer, framed};
use super::session::{self, Session};
use crate::debuggee::{Debuggee, Opened};
use crate::error::Error;
use crate::interrupts::Interrupter;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The number of messages that wait to be answered, at most. Then nothing more is read.
const WAITING_MAX: usize = 16;
/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// Opens what an editor wants to debug, and calls the function with it. The error is a text for the
/// editor's user.
pub type Open<'o> = &'o mut dyn FnMut(
    &Launch,
    &mut dyn FnMut(Opened<'_>) -> Result<(), Error>,
) -> Result<Result<(), Error>, String>;

/// What stops what runs, once something can run.
type Slot = Arc<Mutex<Option<Interrupter>>>;

/// The client, as this thread sees it.
struct Client<'c> {
    from: Receiver<Received>,
    to: &'c mut dyn Write,
    /// The number of the last message sent.
    seq: u64,
}

/// Serves an editor until it disconnects or leaves.
///
/// # Errors
/// If the recording cannot be read, nothing can be written to the editor, or its messages cannot be
/// told apart any more.
pub fn serve(
    from: impl Read + Send + 'static,
    to: &mut dyn Write,
    open: Open<'_>,
) -> Result<(), Error> {
    // Empty until a launch: before that there is nothing to interrupt.
    let slot = Slot::default();
    let (sender, receiver) = sync_channel(WAITING_MAX);

    // A thread reads, so that a request to pause is seen while something runs.
    let readers_slot = slot.clone();
    thread::Builder::new()
        .name("dap client".to_owned())
        .spawn(move || read(from, &readers_slot, &sender))
        .map_err(Error::Thread)?;

    let mut client = Client {
        from: receiver,
        to,
        seq: 0,
    };
    while let Some(message) = client.next()? {
        // A launch answers all requests until its session is over.
        if session::command(&message) == Some("launch") {
            if let Some(end) = client.launch(&message, &slot, open)? {
                return end;
            }
            continue;
        }
        let (answers, is_over) = session::before_launch(&message);
        if !client.send(answers)? || is_over {
            return Ok(());
        }
    }
    Ok(())
}

impl Client<'_> {
    /// The next message; `None` once the client has left.
    fn next(&mut self) -> Result<Option<Value>, Error> {
        loop {
            match self.from.recv() {
                Err(_) => return Ok(None),
                Ok(Received::Message(message)) => return Ok(Some(message)),
                Ok(Received::Broken(why)) => {
                    if !self.send(vec![session::complaint(&why)])? {
                        return Ok(None);
                    }
                }
                Ok(Received::Lost(why)) => {
                    let over = json!({"type": "event", "event": "terminated"});
                    self.send(vec![session::complaint(&why), over])?;
                    return Err(Error::Message(why));
                }
            }
        }
    }

    /// Sends messages. Returns whether the client still reads.
    fn send(&mut self, messages: Vec<Value>) -> Result<bool, Error> {
        for mut message in messages {
            self.seq += 1;
            message["seq"] = self.seq.into();
            let sent = self.to.write_all(&framed(&message));
            match sent.and_then(|()| self.to.flush()) {
                Ok(()) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::BrokenPipe
                            | ErrorKind::ConnectionReset
                            | ErrorKind::ConnectionAborted
                    ) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Opens what is to be debugged, and debugs it to the end. `None` if it could not be opened: the
    /// client may try something else.
    fn launch(
        &mut self,
        request: &Value,
        slot: &Slot,
        open: Open<'_>,
    ) -> Result<Option<Result<(), Error>>, Error> {
        let launch = match Launch::of(&request["arguments"]) {
            Ok(launch) => launch,
            Err(why) => {
                self.send(vec![session::failure(request, &why)])?;
                return Ok(None);
            }
        };

        // The debuggee borrows what `open` makes, so the whole session happens inside of it.
        let opened = open(&launch, &mut |opened| {
            let debuggee = Debuggee::new(opened)?;
            let interrupter = debuggee.interrupter();

            // From now on, the thread that reads can stop what runs.
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(interrupter);

            let (mut session, answers) = Session::new(debuggee, &launch, request);
            if !self.send(answers)? {
                return Ok(());
            }
            while let Some(message) = self.next()? {
                // A way may take long: that it has begun is told before.
                if let Some(early) = session.early(&message)
                    && !self.send(vec![early])?
                {
                    return Ok(());
                }
                let answers = session.message(&message)?;
                if !self.send(answers)? || session.is_over() {
                    return Ok(());
                }
            }
            Ok(())
        });

        match opened {
            Ok(end) => Ok(Some(end)),
            Err(why) => {
                self.send(vec![session::failure(request, &why)])?;
                Ok(None)
            }
        }
    }
}

/// Reads until the client leaves or nobody waits for it.
fn read(mut from: impl Read, slot: &Slot, to: &SyncSender<Received>) {
    let interrupt = || {
        // After a panic elsewhere, too: what is in it is whole.
        let slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(Interrupter::interrupt)
    };

    let mut unframer = Unframer::default();
    let mut buf = [0; READ_BYTES];
    loop {
        let len = match from.read(&mut buf) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A client that cannot be read any more has left.
            Err(_) => break,
        };

        for mut received in buf[..len].iter().filter_map(|byte| unframer.push(*byte)) {
            if let Received::Message(message) = &mut received
                && session::interrupts(message)
                && let Some(number) = interrupt()
            {
                // If nothing runs when it is answered, it is taken back.
                message[session::INTERRUPT] = number.into();
            }
            if to.send(received).is_err() {
                return;
            }
        }
    }
    // What runs for a client that has left ends.
    interrupt();
}
