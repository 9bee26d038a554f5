//! gdb's remote protocol.

use crate::common::{SEED, THROWS, debuggee, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use unwind_sim_serve::gdb::{self, End, Event, Once, PACKET_BYTES_MAX, Unframer, framed};

/// A client.
struct Client<S> {
    stream: S,
    unframer: Unframer,
}

impl<S: Read + Write> Client<S> {
    fn new(stream: S) -> Client<S> {
        Client {
            stream,
            unframer: Unframer::default(),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// The next packet or refusal of one; `None` at the end.
    fn next(&mut self) -> Option<String> {
        let mut byte = [0];
        loop {
            // A server that has closed the connection may have left bytes unread.
            if self.stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            match self.unframer.push(byte[0]) {
                Some(Event::Packet(body)) => return Some(String::from_utf8(body).expect("text")),
                Some(Event::Again) => return Some("-".to_owned()),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }

    /// The answer to a packet.
    #[track_caller]
    fn ask(&mut self, body: &str) -> String {
        self.send(&framed(body.as_bytes()));
        self.next().expect("an answer")
    }

    /// What `monitor` prints.
    #[track_caller]
    fn monitor(&mut self, command: &str) -> String {
        let digits: String = command.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut text = String::new();
        let mut answer = self.ask(&format!("qRcmd,{digits}"));
        while let Some(line) = answer.strip_prefix('O').filter(|line| *line != "K") {
            text.push_str(&unhexed(line));
            answer = self.next().expect("more");
        }
        assert_eq!(answer, "OK");
        text
    }

    /// The value of rip.
    #[track_caller]
    fn rip(&mut self) -> u64 {
        let bytes = self.ask("p10");
        u64::from_str_radix(&bytes, 16).expect("rip").swap_bytes()
    }
}

fn unhexed(digits: &str) -> String {
    let bytes = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
    let bytes = bytes.map(|pair| u8::from_str_radix(pair, 16).expect("two digits"));
    String::from_utf8(bytes.collect()).expect("text")
}

/// Serves a recording to a client on another thread.
fn with_client(name: &str, client: impl FnOnce(Client<UnixStream>) + Send + 'static) -> End {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let client = thread::spawn(move || client(Client::new(ours)));
    let run = run();
    let from = theirs.try_clone().expect("a second end");
    let mut to = &theirs;
    let (_, end) = gdb::serve(debuggee(name, &run), from, &mut to).expect("it is served");
    theirs
        .shutdown(std::net::Shutdown::Both)
        .expect("it closes");
    client.join().expect("the client is content");
    end
}

#[test]
fn a_recording_is_gone_through_in_both_directions() {
    let end = with_client(THROWS, |mut gdb| {
        let features = gdb.ask("qSupported:multiprocess+;swbreak+;xmlRegisters=i386");
        for feature in ["ReverseStep+", "ReverseContinue+", "qXfer:features:read+"] {
            assert!(features.contains(feature), "{features}");
        }
        assert_eq!(gdb.ask("vMustReplyEmpty"), "");
        assert!(gdb.ask("?").starts_with("T05thread:p01."));
        let threads = gdb.ask("qfThreadInfo");
        assert!(threads.starts_with("mp01."), "{threads}");

        // Backwards there is nothing.
        assert!(gdb.ask("bs").contains("replaylog:begin"));
        let first = gdb.rip();

        // In the remote protocol, thread -1 means all threads.
        assert!(gdb.ask("vCont;s:p1.-1").starts_with('E'), "all cannot step");

        // In the remote protocol, `m` begins a list of threads.
        let tid = threads.strip_prefix('m').expect("a thread");
        let step = format!("vCont;s:{tid};c");
        assert!(gdb.ask(&step).starts_with("T05thread:"));
        assert_ne!(gdb.rip(), first);
        assert!(gdb.ask("bs").starts_with("T05thread:"));
        assert_eq!(gdb.rip(), first);

        let stop = gdb.ask("vCont;c");
        assert!(stop.contains("replaylog:end"), "{stop}");
        let last = gdb.rip();
        assert_ne!(last, first);
        assert!(gdb.ask("vCont;c").contains("replaylog:end"));
        assert_eq!(gdb.rip(), last);

        // A breakpoint where the recording begins stops the way back, and one in vain does not.
        assert_eq!(gdb.ask(&format!("Z0,{first:x},1")), "OK");
        assert_eq!(gdb.ask("Z0,1,1"), "OK");
        let stop = gdb.ask("bc");
        assert!(stop.contains("swbreak:"), "{stop}");
        assert_eq!(gdb.rip(), first);
        assert_eq!(gdb.ask(&format!("z0,{first:x},1")), "OK");
        assert_eq!(gdb.ask("D;1"), "OK");
    });
    assert_eq!(end, End::Detached);
}

#[test]
fn a_recording_knows_some_registers_and_memory_and_refuses_to_be_changed() {
    with_client(THROWS, |mut gdb| {
        let general = gdb.ask("g");

        // Two digits a byte: the general registers and rip, eflags and the segments, x87, SSE, and
        // orig_rax with the two bases.
        assert_eq!(general.len(), 2 * (8 * 17 + 4 * 7 + 80 + 32 + 256 + 4 + 24));
        // rsp is known, st0 is not.
        let rsp = &general[7 * 16..8 * 16];
        assert!(rsp.bytes().all(|digit| digit.is_ascii_hexdigit()), "{rsp}");
        assert_eq!(&general[2 * 164..2 * 174], "x".repeat(20));
        assert_eq!(gdb.ask("p18"), "x".repeat(20));
        assert_eq!(gdb.ask("pff"), "");

        let rsp = u64::from_str_radix(rsp, 16).expect("rsp").swap_bytes();
        assert_eq!(gdb.ask(&format!("m{rsp:x},10")).len(), 32);
        let rip = gdb.rip();
        assert_eq!(gdb.ask(&format!("m{rip:x},1")).len(), 2);
        assert_eq!(gdb.ask("m0,8"), "E0e");
        // The memory that was recorded ends somewhere, and so does an answer.
        let most = gdb.ask(&format!("m{rsp:x},100000000"));
        assert!((2..=2 * 4096).contains(&most.len()), "{}", most.len());

        for write in ["P10=0011223344556677", "G00", "M0,1:00", "X0,1:a"] {
            let answer = gdb.ask(write);
            assert!(answer.starts_with("E.the state is read-only"), "{answer}");
        }
        // Nothing is known of what happens between samples.
        assert!(gdb.ask(&format!("Z2,{rsp:x},8")).starts_with('E'));
    });
}

#[test]
fn the_monitor_tells_what_the_simulator_knows() {
    with_client(SEED, |mut gdb| {
        let truth = gdb.monitor("truth");
        assert!(truth.starts_with("#0  0x"), "{truth}");
        assert!(gdb.monitor("state").starts_with("state 0 of "));
        let verdicts = gdb.monitor("walk");
        for name in ["dwarf: ", "fp: ", "guess: "] {
            assert!(verdicts.contains(name), "{verdicts}");
        }
        let walk = gdb.monitor("walk dwarf");
        assert!(walk.starts_with("#0  0x"), "{walk}");
        assert!(gdb.monitor("walk nobody").contains("dwarf, fp, guess"));
        assert!(gdb.monitor("help").contains("explain [UNWINDER]"));
        assert!(gdb.monitor("dance").contains("`help` lists them"));
        assert!(gdb.monitor("truth 1 2").contains("no command"));
        assert!(
            gdb.monitor("truth -1")
                .contains("not the number of a thread")
        );
        assert!(gdb.monitor("truth 4000000000").contains("no thread"));
        assert!(gdb.monitor("files").ends_with('\n'));
    });
}

#[test]
fn the_way_stops_where_an_unwinder_becomes_wrong() {
    with_client(THROWS, |mut gdb| {
        let found = gdb.monitor("wrong next");
        assert!(found.contains("`continue` stops there"), "{found}");
        let number = found.split(' ').nth(3).expect("a number").to_owned();

        // Two packets come back: text for the console, and then the stop.
        gdb.send(&framed(b"vCont;c"));
        let said = gdb.next().expect("why it stops");
        assert!(unhexed(&said[1..]).contains(&number), "{said}");
        assert!(gdb.next().expect("the stop").starts_with("T05thread:"));
        assert!(
            gdb.monitor("state")
                .starts_with(&format!("state {number} "))
        );
        let wrong = gdb.monitor("wrong");
        assert!(wrong.contains("; US"), "{wrong}");
        assert!(!gdb.monitor("explain").contains("no unwinder"));
        assert!(gdb.monitor("explain dwarf").contains("dwarf@"));

        // The appointment was kept once.
        assert!(gdb.ask("vCont;c").contains("replaylog:end"));
        let found = gdb.monitor("wrong next");
        assert!(found.starts_with("none of dwarf, fp, guess"), "{found}");
        let found = gdb.monitor("wrong previous");
        assert!(found.contains("`reverse-continue` stops there"), "{found}");
    });
}

#[test]
fn malformed_packets_get_an_answer_and_the_session_goes_on() {
    with_client(SEED, |mut gdb| {
        gdb.ask("qSupported:multiprocess+");
        gdb.send(b"$g#00");
        assert_eq!(gdb.next().as_deref(), Some("-"));
        assert_eq!(gdb.ask("QStartNoAckMode"), "OK");
        gdb.send(b"$g#00");
        let answer = gdb.next().expect("an answer");

        // Without acknowledgements there is no `-` that asks for it again.
        assert!(answer.starts_with("E.the packet's checksum"), "{answer}");

        // The checksum is right, so only the length can be refused.
        gdb.send(&framed(&vec![b'a'; PACKET_BYTES_MAX + 1]));
        let answer = gdb.next().expect("an answer");
        assert!(answer.starts_with("E.the packet is longer"), "{answer}");

        // Whatever the answer is: the session must neither hang nor end.
        let malformed = [
            "m",
            "mzz,1",
            "m0,",
            "m0,zz",
            "mffffffffffffffffff,8",
            "p",
            "pzz",
            "H",
            "Hg",
            "Hgp",
            "T",
            "Tp0.0",
            "Z",
            "Z0",
            "Z0,",
            "Z0,10,zz",
            "Z9,0,1",
            "z0,77,1",
            "vCont;x",
            "vCont;s:",
            "vCont;r1:p1.1",
            "vCont;t",
            "vCont",
            "qXfer:features:read:x.xml:0,10",
            "qRcmd,z",
            "qXfer:features:read:target.xml:ffffffffffffffff,ffffffff",
            "vKill",
            "vAttach;1",
            "!",
            "qThreadExtraInfo,zz",
            "c1",
            "s1",
            "Hc-1",
            "Hg-1",
        ];
        for body in malformed {
            gdb.send(&framed(body.as_bytes()));
            gdb.next().unwrap_or_else(|| panic!("no answer to {body}"));
        }

        // A length of 80 bits is too large for any integer of the server.
        let most = gdb.ask("mfffffffffffffff0,ffffffffffffffffffff");
        assert!(most.starts_with('E'), "{most}");

        // A stub that started anew knows what the client has told before.
        assert!(gdb.ask("?").starts_with("T05thread:p01."));
    });
}

#[test]
fn a_client_may_leave_at_any_moment() {
    for bytes in [&b""[..], b"$", b"$qSupp", b"$g#6", b"$g#67"] {
        let end = with_client(SEED, |mut gdb| gdb.send(bytes));
        assert_eq!(end, End::Detached);
    }
}

/// gdb sends `vKill` first, and shows an error if the connection closes without an answer.
#[test]
fn a_kill_with_a_process_is_answered() {
    let end = with_client(SEED, |mut gdb| {
        assert_eq!(gdb.ask("vKill;1"), "OK");
        assert_eq!(gdb.next(), None);
    });
    assert_eq!(end, End::Killed);
}

#[test]
fn an_interrupt_while_nothing_runs_is_ignored() {
    with_client(SEED, |mut gdb| {
        gdb.send(b"\x03");
        gdb.send(b"\x03");
        assert!(gdb.ask("vCont;c").contains("replaylog:end"));
    });
}

/// Ends a server whose client has failed.
struct EndOnPanic(SocketAddr);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let stream = TcpStream::connect(self.0);
            let _ = stream.and_then(|mut stream| stream.write_all(&framed(b"k")));
        }
    }
}

#[test]
fn there_is_one_client_at_a_time() {
    let (ready, address) = channel();
    let clients = thread::spawn(move || {
        let address: SocketAddr = address.recv().expect("the server listens");
        assert!(address.ip().is_loopback());
        let connect = || Client::new(TcpStream::connect(address).expect("a connection"));

        // If the client fails, the server would otherwise wait for another one forever.
        let _end = EndOnPanic(address);

        let mut first = connect();
        assert!(first.ask("?").starts_with("T05"));
        assert!(first.ask("vCont;c").contains("replaylog:end"));
        let last = first.rip();

        let mut second = connect();
        second.send(&framed(b"qSupported"));
        let answer = second.next().expect("a clear answer");
        assert!(answer.starts_with("E.another client"), "{answer}");
        assert_eq!(second.next(), None);

        // The first is still served, and the next finds what it left.
        assert_eq!(first.rip(), last);
        drop(first);
        let mut third = connect();
        assert_eq!(third.rip(), last);
        // `k` is gdb's packet to kill the program: the server ends, too.
        third.send(&framed(b"k"));
        assert_eq!(third.next(), None);
    });

    let run = run();
    let served = gdb::listen(debuggee(SEED, &run), 0, Once::No, |address| {
        ready.send(address).map_err(std::io::Error::other)
    });
    served.expect("it was served");
    clients.join().expect("the clients are content");
}

#[test]
fn a_server_for_once_ends_with_its_client() {
    let (ready, address) = channel();
    let client = thread::spawn(move || {
        let address: SocketAddr = address.recv().expect("the server listens");
        let mut gdb = Client::new(TcpStream::connect(address).expect("a connection"));
        assert_eq!(gdb.ask("D"), "OK");
    });
    let run = run();
    let served = gdb::listen(debuggee(SEED, &run), 0, Once::Yes, |address| {
        ready.send(address).map_err(std::io::Error::other)
    });
    served.expect("it was served");
    client.join().expect("the client is content");
}
