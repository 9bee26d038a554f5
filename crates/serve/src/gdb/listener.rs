//! A server that listens on this computer only, and has one client at a time.

use super::connection::serve;
use super::packets::refusal;
use super::session::End;
use crate::debuggee::Debuggee;
use crate::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a client waits for the one before it: that may have left a moment ago.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes read at most of a client that is refused.
const REFUSED_BYTES_MAX: u64 = 1 << 16;

/// Whether a server ends when its first client leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Once {
    /// It does.
    Yes,
    /// It waits for the next client, until one kills the program.
    No,
}

/// Listens on a port of this computer, 0 for any that is free, and serves one client after the other.
/// `ready` is called with the address.
///
/// # Errors
/// If the port cannot be listened on, or the recording cannot be read.
pub fn listen(
    mut debuggee: Debuggee<'_>,
    port: u16,
    once: Once,
    ready: impl FnOnce(SocketAddr) -> std::io::Result<()>,
) -> Result<(), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(Error::Listen)?;
    let address = listener.local_addr().map_err(Error::Listen)?;
    ready(address)?;

    let clients = Clients::new(listener, address)?;
    while let Ok(stream) = clients.queue.recv() {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        if let Ok(from) = stream.try_clone() {
            let mut to = &stream;
            let (left, end) = serve(debuggee, from, &mut to)?;
            debuggee = left;
            // Ends the thread that reads from it, too.
            let _ = stream.shutdown(Shutdown::Both);
            if end == End::Killed || once == Once::Yes {
                break;
            }
        }
        clients.seat.leave();
    }
    Ok(())
}

/// The place of the client that is served.
#[derive(Default)]
struct Seat {
    is_taken: Mutex<bool>,
    left: Condvar,
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place, if it is or soon becomes free.
    fn take(&self) -> bool {
        let taken = self.lock();
        let waited = self
            .left
            .wait_timeout_while(taken, PATIENCE, |is_taken| *is_taken);
        let (mut taken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_free = !timeout.timed_out();
        *taken = true;
        is_free
    }

    fn leave(&self) {
        *self.lock() = false;
        self.left.notify_all();
    }
}

/// The clients that come.
struct Clients {
    queue: Receiver<TcpStream>,
    seat: Arc<Seat>,
    is_over: Arc<Mutex<bool>>,
    address: SocketAddr,
}

impl Clients {
    /// Accepts clients on another thread, so that one who comes while another is served is told.
    fn new(listener: TcpListener, address: SocketAddr) -> Result<Clients, Error> {
        let (seat, is_over) = (Arc::<Seat>::default(), Arc::<Mutex<bool>>::default());
        let (sender, queue) = sync_channel(1);
        let (the_seat, over) = (seat.clone(), is_over.clone());
        let acceptor = thread::Builder::new().name("gdb clients".to_owned());
        acceptor
            .spawn(move || accept(&listener, &the_seat, &over, &sender))
            .map_err(Error::Thread)?;
        Ok(Clients {
            queue,
            seat,
            is_over,
            address,
        })
    }
}

impl Drop for Clients {
    /// Wakes the thread that accepts, so that it ends and the port is free.
    fn drop(&mut self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, seat: &Seat, is_over: &Mutex<bool>, to: &SyncSender<TcpStream>) {
    loop {
        let stream = listener.accept();
        if *is_over.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        let Ok((mut stream, _)) = stream else {
            // Such as too many open files: others may be closed soon.
            thread::sleep(PATIENCE);
            continue;
        };
        if !seat.take() {
            refuse(&mut stream);
        } else if to.send(stream).is_err() {
            return;
        }
    }
}

/// Tells a client that it is one too many, in the only words that it reads: an answer to its first
/// packet.
fn refuse(stream: &mut TcpStream) {
    let text = "another client is connected, and there can be only one";
    let answer = [b"+", &refusal(text)[..]].concat();
    let _ = stream.write_all(&answer);
    let _ = stream.shutdown(Shutdown::Write);

    // What it has sent is read: a connection that is closed before takes the answer with it.
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = std::io::copy(&mut stream.take(REFUSED_BYTES_MAX), &mut std::io::sink());
}
