//! The connection to a stub: sends packets and waits for answers.

use super::error::GdbError;
use super::packet::{Decoder, Frame, encode, unhex};
use super::registers::{Layout, Registers};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unwind_sim_unwind::printable::Printable;

/// How often a damaged packet is requested again, or sent again.
const RETRIES: u32 = 3;
/// Packet size for a stub that does not announce one, in bytes.
const PACKET_SIZE_DEFAULT: usize = 400;
/// The packet sizes accepted from a stub, in bytes.
const PACKET_SIZES: std::ops::RangeInclusive<usize> = 64..=(16 << 10);
/// Maximum packets of a target description; QEMU's takes four.
const DESCRIPTION_PACKETS_MAX: usize = 256;
/// Maximum number of threads read.
const THREADS_MAX: usize = 4096;
/// Maximum packets skipped while waiting for an answer.
const PASSED_MAX: usize = 64;
/// Bytes of a wrong answer that are reported.
const TOLD: usize = 60;

/// Options of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            timeout: Duration::from_secs(10),
        }
    }
}

/// What the other threads do while one is stepped or resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherThreads {
    /// They stay stopped.
    Wait,
    /// They run.
    Run,
}

/// Why the machine stopped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stop {
    /// The signal's number: 5 for breakpoints and steps.
    pub signal: u8,
    /// The thread's id as the stub writes it; empty if it names none.
    pub thread: String,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(address: &str, timeout: Duration) -> io::Result<Stream> {
        if address.contains('/') {
            return UnixStream::connect(address).map(Stream::Unix);
        }
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Stream::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        // A timeout of zero is invalid.
        let time = Some(time.max(Duration::from_millis(1)));
        match self {
            Stream::Tcp(s) => s.set_read_timeout(time),
            Stream::Unix(s) => s.set_read_timeout(time),
        }
    }

    fn write_at_most(&self, time: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_write_timeout(Some(time)),
            Stream::Unix(s) => s.set_write_timeout(Some(time)),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(buffer),
            Stream::Unix(s) => s.read(buffer),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.write_all(bytes),
            Stream::Unix(s) => s.write_all(bytes),
        }
    }
}

/// A connection to a stub. The machine is stopped whenever a request is made.
pub struct Client {
    stream: Stream,
    decoder: Decoder,
    options: ClientOptions,
    acks: bool,
    packet_size: usize,
    layout: Arc<Layout>,
    /// Whether single threads can be resumed.
    by_thread: bool,
    first_stop: Stop,
    /// The read timeout currently set, since setting it takes a system call.
    waits: Duration,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("packet_size", &self.packet_size)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to `HOST:PORT`, or to a Unix socket if `address` contains a `/`.
    ///
    /// # Errors
    /// If nothing listens there, or it does not speak the protocol.
    pub fn connect(address: &str, options: ClientOptions) -> Result<Client, GdbError> {
        let opened = Stream::connect(address, options.timeout).and_then(|stream| {
            stream.wait_at_most(options.timeout)?;
            stream.write_at_most(options.timeout)?;
            Ok(stream)
        });
        let stream = opened.map_err(|error| GdbError::Connect {
            address: address.to_owned(),
            error,
        })?;
        let mut client = Client {
            stream,
            decoder: Decoder::default(),
            options,
            acks: true,
            packet_size: PACKET_SIZE_DEFAULT,
            layout: Arc::default(),
            by_thread: false,
            first_stop: Stop::default(),
            waits: options.timeout,
        };
        client.begin()?;
        Ok(client)
    }

    fn begin(&mut self) -> Result<(), GdbError> {
        // After connecting, a stub may first report that it has stopped. That is not an answer.
        let is_features = |a: &[u8]| a.is_empty() || !matches!(a[0], b'T' | b'S');
        let features = self.ask_for("qSupported:xmlRegisters=i386", is_features)?;
        let features = String::from_utf8_lossy(&features).into_owned();
        let has = |name: &str| features.split(';').any(|f| f == name);

        let size = features.split(';').find_map(|f| {
            let size = f.strip_prefix("PacketSize=")?;
            usize::from_str_radix(size, 16).ok()
        });
        if let Some(size) = size {
            // A stub may claim any size.
            self.packet_size = size.clamp(*PACKET_SIZES.start(), *PACKET_SIZES.end());
        }

        // The connection is reliable, so acknowledgements are only overhead (gdb manual, "Packet
        // Acknowledgment").
        if has("QStartNoAckMode+") && self.ask("QStartNoAckMode")? == b"OK" {
            self.acks = false;
        }

        if has("qXfer:features:read+")
            && let Some(document) = self.document("target.xml")?
        {
            // A description includes others (`xi:include`), which are read from the stub in turn.
            let mut error = None;
            let layout = Layout::from_description(&document, &mut |name| {
                self.document(name).unwrap_or_else(|e| {
                    error = Some(e);
                    None
                })
            });
            if let Some(error) = error {
                return Err(error);
            }
            self.layout = Arc::new(layout.unwrap_or_default());
        }

        // Why the machine stood still when we came (gdb manual, "Packets").
        self.first_stop = self.ask_stop("?", self.options.timeout)?;

        // Only `vCont` can step one thread while the others wait.
        let actions = self.ask("vCont?")?;
        let mut actions = actions.split(|b| *b == b';');
        self.by_thread = actions.next() == Some(b"vCont") && actions.any(|a| a == b"s");
        Ok(())
    }

    /// The stop reported when the connection was made.
    pub const fn first_stop(&self) -> &Stop {
        &self.first_stop
    }

    /// Selects the thread whose registers and memory are read from here on.
    ///
    /// # Errors
    /// If the stub refuses.
    pub fn select(&mut self, thread: &str) -> Result<(), GdbError> {
        self.accept(&format!("Hg{thread}"))
    }

    fn document(&mut self, name: &str) -> Result<Option<String>, GdbError> {
        let mut document = Vec::new();
        let len = self.packet_size - 5;
        for _ in 0..DESCRIPTION_PACKETS_MAX {
            let asked = format!("qXfer:features:read:{name}:{:x},{len:x}", document.len());
            let answer = self.ask(&asked)?;
            match answer.split_first() {
                Some((b'l', rest)) => {
                    document.extend_from_slice(rest);
                    return Ok(Some(String::from_utf8_lossy(&document).into_owned()));
                }
                Some((b'm', rest)) if !rest.is_empty() => document.extend_from_slice(rest),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The registers of the selected thread: by default the one that stopped.
    ///
    /// # Errors
    /// If the stub does not answer, or its answer is not registers.
    pub fn registers(&mut self) -> Result<Registers, GdbError> {
        let answer = self.ask("g")?;
        let is_hex = |b: &u8| b.is_ascii_hexdigit() || *b == b'x';
        if answer.len() < 16 || !answer.iter().all(is_hex) {
            return Err(no_answer("g", &answer));
        }
        let registers = Registers::new(self.layout.clone(), answer);
        for name in ["rip", "rsp", "rbp"] {
            registers.get(name).ok_or(GdbError::NoRegister(name))?;
        }
        Ok(registers)
    }

    /// The `len` bytes at `address`.
    ///
    /// # Errors
    /// If the stub does not answer, or cannot read all of it.
    pub fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>, GdbError> {
        let most = (self.packet_size - 4) / 2;
        let mut out = Vec::with_capacity(len.min(super::PACKET_MAX));
        while out.len() < len {
            let part = (len - out.len()).min(most);
            let asked = format!("m{:x},{part:x}", address.wrapping_add(out.len() as u64));
            let answer = self.ask(&asked)?;
            let bytes = match answer.first() {
                Some(b'E') if answer.len() == 3 => return Err(refused(&asked, &answer)),
                _ => unhex(&answer),
            };
            match bytes {
                Some(bytes) if !bytes.is_empty() && bytes.len() <= part => out.extend(bytes),
                _ => return Err(no_answer(&asked, &answer)),
            }
        }
        Ok(out)
    }

    /// The 8 bytes at `address`, little-endian.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn word(&mut self, address: u64) -> Result<u64, GdbError> {
        let bytes = self.read(address, 8)?;
        Ok(bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)))
    }

    /// Stops the machine before the instruction at `address`: with a hardware breakpoint, so that
    /// nothing is written there, or with a software breakpoint if the stub has no other kind.
    ///
    /// # Errors
    /// If the stub supports neither.
    pub fn set_breakpoint(&mut self, address: u64) -> Result<(), GdbError> {
        self.breakpoint('Z', address)
    }

    /// Removes the breakpoint at `address`.
    ///
    /// # Errors
    /// If the stub refuses.
    pub fn clear_breakpoint(&mut self, address: u64) -> Result<(), GdbError> {
        self.breakpoint('z', address)
    }

    fn breakpoint(&mut self, what: char, address: u64) -> Result<(), GdbError> {
        let by_hardware = format!("{what}1,{address:x},1");
        if self.ask(&by_hardware)? == b"OK" {
            return Ok(());
        }
        self.accept(&format!("{what}0,{address:x},1"))
    }

    /// The `len` bytes at a physical address. Only QEMU supports this.
    ///
    /// # Errors
    /// If the stub does not support it, or cannot read all of it.
    pub fn read_physical(&mut self, address: u64, len: usize) -> Result<Vec<u8>, GdbError> {
        self.accept("Qqemu.PhyMemMode:1")?;
        let bytes = self.read(address, len);
        self.accept("Qqemu.PhyMemMode:0")?;
        bytes
    }

    /// Executes one instruction of this thread, or of the one that stopped if the stub cannot
    /// choose or names no threads.
    ///
    /// # Errors
    /// If the stub does not answer in time, or the machine has ended.
    pub fn step(&mut self, thread: &str, others: OtherThreads) -> Result<Stop, GdbError> {
        let packet = self.action('s', thread, others);
        self.ask_stop(&packet, self.options.timeout)
    }

    fn action(&self, action: char, thread: &str, others: OtherThreads) -> String {
        match others {
            _ if thread.is_empty() || !self.by_thread => action.to_string(),
            OtherThreads::Wait => format!("vCont;{action}:{thread}"),
            OtherThreads::Run => format!("vCont;{action}:{thread};c"),
        }
    }

    /// Runs the machine until it stops, or interrupts it after `most`. With [`OtherThreads::Wait`]
    /// only this thread runs, if the stub supports that.
    ///
    /// # Errors
    /// If it cannot be stopped, or has ended.
    pub fn resume(
        &mut self,
        thread: &str,
        others: OtherThreads,
        most: Duration,
    ) -> Result<Stop, GdbError> {
        let packet = match others {
            OtherThreads::Run => "c".to_owned(),
            OtherThreads::Wait => self.action('c', thread, others),
        };
        match self.ask_stop(&packet, most) {
            Err(GdbError::Silent { .. }) => {
                self.write("c", &[3])?;
                let answer = self.wait("interrupt", self.options.timeout, is_stop)?;
                stop("interrupt", &answer)
            }
            other => other,
        }
    }

    /// The threads. QEMU's threads are the processors.
    ///
    /// # Errors
    /// If the stub does not answer, or the list does not end.
    pub fn threads(&mut self) -> Result<Vec<String>, GdbError> {
        let mut out = Vec::new();
        let mut asked = "qfThreadInfo";
        loop {
            let answer = self.ask(asked)?;
            let text = String::from_utf8_lossy(&answer).into_owned();
            match text.split_at_checked(1) {
                Some(("m", names)) if !names.is_empty() => {
                    out.extend(names.split(',').map(str::to_owned));
                }
                Some(("l", _)) | None => return Ok(out),
                _ => return Err(no_answer(asked, &answer)),
            }
            if out.len() > THREADS_MAX {
                return Err(no_answer(asked, &answer));
            }
            asked = "qsThreadInfo";
        }
    }

    /// Sends a packet whose answer must be `OK`.
    ///
    /// # Errors
    /// If the answer is anything else.
    pub fn accept(&mut self, packet: &str) -> Result<(), GdbError> {
        let answer = self.ask(packet)?;
        match &*answer {
            b"OK" => Ok(()),
            b"" => Err(refused(packet, b"it does not support the packet")),
            [b'E', ..] => Err(refused(packet, &answer)),
            _ => Err(no_answer(packet, &answer)),
        }
    }

    /// Sends a packet and returns the answer, which is empty if the stub does not know the packet.
    ///
    /// # Errors
    /// If the stub does not answer.
    pub fn query(&mut self, packet: &str) -> Result<Vec<u8>, GdbError> {
        self.ask(packet)
    }

    /// Disconnects and lets the machine run.
    ///
    /// # Errors
    /// If the stub refuses.
    pub fn detach(mut self) -> Result<(), GdbError> {
        self.accept("D")
    }

    fn ask(&mut self, packet: &str) -> Result<Vec<u8>, GdbError> {
        self.ask_for(packet, |_| true)
    }

    fn ask_for(
        &mut self,
        packet: &str,
        is_answer: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, GdbError> {
        self.write(packet, &encode(packet.as_bytes()))?;
        self.wait(packet, self.options.timeout, is_answer)
    }

    fn ask_stop(&mut self, packet: &str, most: Duration) -> Result<Stop, GdbError> {
        self.write(packet, &encode(packet.as_bytes()))?;
        let answer = self.wait(packet, most, is_stop)?;
        stop(packet, &answer)
    }

    fn write(&mut self, asked: &str, bytes: &[u8]) -> Result<(), GdbError> {
        let result = self.stream.write_all(bytes);
        result.map_err(|error| io_error(asked, error, self.options.timeout))
    }

    /// Waits for a packet for which `is_answer` holds.
    fn wait(
        &mut self,
        asked: &str,
        most: Duration,
        is_answer: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, GdbError> {
        let deadline = Instant::now() + most;
        let (mut retries, mut passed) = (0, 0);
        let mut buffer = [0; 8192];

        loop {
            while let Some(frame) = self.decoder.frame() {
                match frame {
                    Ok(Frame::Packet(data)) => {
                        // Without this answer the stub would send the packet again.
                        if self.acks {
                            self.write(asked, b"+")?;
                        }
                        if is_answer(&data) {
                            return Ok(data);
                        }
                        passed += 1;
                        // A stub that sends other packets without end must not keep this loop busy.
                        if passed > PASSED_MAX {
                            return Err(no_answer(asked, &data));
                        }
                    }
                    // The stub received our packet damaged.
                    Ok(Frame::Nak) if self.acks && retries < RETRIES && !asked.is_empty() => {
                        retries += 1;
                        self.write(asked, &encode(asked.as_bytes()))?;
                    }
                    Ok(_) => {}
                    // What is damaged can be sent again, but only if packets are acknowledged.
                    Err(problem) if !self.acks || retries == RETRIES || !problem.is_damage() => {
                        let asked = asked.to_owned();
                        return Err(GdbError::Packet { asked, problem });
                    }
                    Err(_) => {
                        retries += 1;
                        self.write(asked, b"-")?;
                    }
                }
            }

            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent(asked, most));
            }

            let failed = |error| io_error(asked, error, most);
            // While plenty of time is left, the timeout set before is good enough.
            if left < most / 2 || self.waits != most {
                self.stream.wait_at_most(left).map_err(failed)?;
                self.waits = if left < most / 2 { left } else { most };
            }

            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    let asked = asked.to_owned();
                    return Err(GdbError::Closed { asked });
                }
                Ok(len) => self.decoder.push(&buffer[..len]),
                // Interrupted by a signal; the deadline still holds.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn is_stop(answer: &[u8]) -> bool {
    // Console output of the machine is not a stop.
    !matches!(answer.first(), Some(b'O')) && answer != b"OK"
}

fn stop(asked: &str, answer: &[u8]) -> Result<Stop, GdbError> {
    let text = String::from_utf8_lossy(answer);
    let number = |digits: Option<&str>| digits.and_then(|d| u8::from_str_radix(d, 16).ok());
    match answer.first() {
        Some(b'S' | b'T') => {
            let signal = number(text.get(1..3)).ok_or_else(|| no_answer(asked, answer))?;
            let pairs = text.get(3..).unwrap_or_default();
            let thread = pairs.split(';').find_map(|p| p.strip_prefix("thread:"));
            let thread = thread.unwrap_or_default().to_owned();
            Ok(Stop { signal, thread })
        }
        Some(b'W' | b'X') => Err(GdbError::Ended(shortened(answer))),
        Some(b'E') => Err(refused(asked, answer)),
        _ => Err(no_answer(asked, answer)),
    }
}

fn shortened(answer: &[u8]) -> String {
    let part = &answer[..answer.len().min(TOLD)];
    Printable::new(part).to_string()
}

fn no_answer(asked: &str, answer: &[u8]) -> GdbError {
    GdbError::Unexpected {
        asked: asked.to_owned(),
        answer: shortened(answer),
    }
}

fn refused(asked: &str, code: &[u8]) -> GdbError {
    GdbError::Refused {
        asked: asked.to_owned(),
        code: shortened(code),
    }
}

fn silent(asked: &str, most: Duration) -> GdbError {
    GdbError::Silent {
        asked: asked.to_owned(),
        ms: most.as_millis(),
    }
}

fn io_error(asked: &str, error: io::Error, most: Duration) -> GdbError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => silent(asked, most),
        _ => GdbError::Io {
            asked: asked.to_owned(),
            error,
        },
    }
}
