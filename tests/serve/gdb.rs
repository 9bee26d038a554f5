//! gdb's remote protocol, with a client that is a script.

use super::{CASE, Server};
use unwind_sim_serve::gdb::{Event, Unframer, framed};

/// A client without acknowledgements.
struct Client {
    server: Server,
    unframer: Unframer,
}

impl Client {
    fn start(args: &[&str]) -> Client {
        let server = Server::start(&[&["gdbserver", "-"], args].concat());
        let mut client = Client {
            server,
            unframer: Unframer::default(),
        };
        assert_eq!(client.ask("QStartNoAckMode"), "OK");
        client
    }

    fn next(&mut self) -> String {
        loop {
            let byte = self.server.byte();
            if let Some(Event::Packet(body)) = self.unframer.push(byte) {
                return String::from_utf8(body).expect("text");
            }
        }
    }

    #[track_caller]
    fn ask(&mut self, body: &str) -> String {
        self.server.send(&framed(body.as_bytes()));
        self.next()
    }

    /// The answer to a way, without what is said on the console.
    #[track_caller]
    fn go(&mut self, body: &str) -> String {
        let mut answer = self.ask(body);
        while answer.starts_with('O') && answer != "OK" {
            answer = self.next();
        }
        answer
    }

    /// A register, by gdb's number.
    #[track_caller]
    fn register(&mut self, number: usize) -> u64 {
        let bytes = self.ask(&format!("p{number:x}"));
        u64::from_str_radix(&bytes, 16)
            .expect("a value")
            .swap_bytes()
    }

    fn rip(&mut self) -> u64 {
        self.register(16)
    }

    fn rsp(&mut self) -> u64 {
        self.register(7)
    }

    fn word(&mut self, address: u64) -> u64 {
        let bytes = self.ask(&format!("m{address:x},8"));
        u64::from_str_radix(&bytes, 16)
            .expect("a word")
            .swap_bytes()
    }
}

const STEP: &str = "vCont;s:3e8;c";
const CONTINUE: &str = "vCont;c";

/// Every state forwards, and then backwards the same.
#[test]
fn a_run_is_the_same_in_both_directions() {
    let mut gdb = Client::start(&[CASE]);
    let mut forward = vec![gdb.ask("g")];
    loop {
        let stop = gdb.go(STEP);
        if stop.contains("replaylog:end") {
            break;
        }
        assert_eq!(stop, "T05thread:03e8;");
        forward.push(gdb.ask("g"));
    }
    assert!(forward.len() > 20, "{} states", forward.len());
    assert_eq!(&gdb.ask("g"), forward.last().expect("a state"));

    for expected in forward.iter().rev().skip(1) {
        assert_eq!(gdb.go("bs"), "T05thread:03e8;");
        assert_eq!(&gdb.ask("g"), expected);
    }
    assert!(gdb.go("bs").contains("replaylog:begin"));
    assert_eq!(gdb.server.leave(), Some(0));
}

/// A breakpoint, found by stepping, stops ways in both directions.
#[test]
fn breakpoints_stop_both_ways() {
    let mut gdb = Client::start(&[CASE]);
    for _ in 0..15 {
        gdb.go(STEP);
    }
    let (middle, rsp) = (gdb.rip(), gdb.rsp());
    assert!(gdb.go(CONTINUE).contains("replaylog:end"));

    assert_eq!(gdb.ask(&format!("Z0,{middle:x},1")), "OK");
    assert_eq!(gdb.go("bc"), "T05thread:03e8;swbreak:;");
    assert_eq!((gdb.rip(), gdb.rsp()), (middle, rsp));
    assert!(gdb.go("bc").contains("replaylog:begin"));
    assert_eq!(gdb.go(CONTINUE), "T05thread:03e8;swbreak:;");
    assert_eq!((gdb.rip(), gdb.rsp()), (middle, rsp));

    assert_eq!(gdb.ask(&format!("z0,{middle:x},1")), "OK");
    assert_eq!(gdb.ask(&format!("Z1,{middle:x},1")), "OK");
    assert!(gdb.go("bc").contains("replaylog:begin"), "it is behind");
    assert_eq!(gdb.go(CONTINUE), "T05thread:03e8;swbreak:;");
}

/// A watchpoint stops behind the instruction that writes and, backwards, before it.
#[test]
fn watchpoints_stop_behind_the_write_and_backwards_before_it() {
    let mut gdb = Client::start(&["--from", "leaf", CASE]);
    let (at, rsp) = (gdb.rip(), gdb.rsp());
    // At the entry of `leaf`, its first instruction pushes rbp to this word.
    let slot = rsp - 8;
    let before = gdb.word(slot);
    assert_eq!(gdb.ask(&format!("Z2,{slot:x},8")), "OK");

    // push %rbp
    let stop = gdb.go(CONTINUE);
    let watched = format!("T05thread:03e8;watch:{slot:016x};");
    assert_eq!(stop, watched.replace("watch:0000", "watch:"), "{stop}");
    assert_eq!((gdb.rip(), gdb.rsp()), (at + 1, slot));
    assert_ne!(gdb.word(slot), before);

    // Backwards, the stop is before the write: the old value is there again.
    assert!(gdb.go("bc").contains("watch:"));
    assert_eq!((gdb.rip(), gdb.rsp()), (at, rsp));
    assert_eq!(gdb.word(slot), before);

    // The return address at rsp is read by ret, and written by call.
    assert_eq!(gdb.ask(&format!("z2,{slot:x},8")), "OK");
    assert_eq!(gdb.ask(&format!("Z3,{rsp:x},8")), "OK");
    assert!(gdb.go(CONTINUE).contains("rwatch:"));
    assert_eq!(gdb.rsp(), rsp + 8);
    assert!(gdb.go("bc").contains("rwatch:"));
    assert!(
        gdb.go("bc").contains("replaylog:begin"),
        "call does not read"
    );
    assert_eq!(gdb.ask(&format!("z3,{rsp:x},8")), "OK");
    // One byte of the word is enough for a stop.
    assert_eq!(gdb.ask(&format!("Z4,{rsp:x},1")), "OK");
    assert!(gdb.go(CONTINUE).contains("awatch:"));
    assert_eq!(gdb.rip(), at);
}

/// A step over a range ends outside of it, and a thread that is not there does not step.
#[test]
fn steps_over_a_range_end_outside() {
    let mut gdb = Client::start(&["--from", "leaf", CASE]);
    let (at, rsp) = (gdb.rip(), gdb.rsp());
    let caller = gdb.word(rsp);
    let range = format!("vCont;r{at:x},{:x}:3e8;c", at + 7);
    assert_eq!(gdb.go(&range), "T05thread:03e8;");
    assert_eq!(gdb.rip(), caller);
    assert_eq!(gdb.ask("T3e8"), "OK");
    assert!(gdb.ask("T3e9").starts_with('E'));
}

/// What runs without an end is stopped by the client, and can go back.
#[test]
fn an_interrupt_stops_a_run_without_an_end() {
    let mut gdb = Client::start(&["--", "/bin/sh", "-c", "while :; do :; done"]);
    gdb.server.send(&framed(CONTINUE.as_bytes()));
    gdb.server.send(b"\x03");
    assert_eq!(gdb.next(), "T02thread:03e8;");
    assert_eq!(gdb.go("bs").get(..3), Some("T05"));

    // A client that leaves while it runs ends the server.
    gdb.server.send(&framed(CONTINUE.as_bytes()));
    assert_eq!(gdb.server.leave(), Some(0));
}

/// A run without an end is not run beyond the state where an unwinder becomes wrong, nor beyond a
/// breakpoint before it.
#[test]
fn a_run_without_an_end_stops_where_an_unwinder_becomes_wrong() {
    let program = ["--", "/bin/sh", "-c", "while :; do :; done"];
    let mut gdb = Client::start(&[&["--unwinder", "fp"], &program[..]].concat());
    // monitor wrong next
    let appoint = "qRcmd,77726f6e67206e657874";
    assert_eq!(gdb.go(appoint), "OK");
    assert_eq!(gdb.go(CONTINUE), "T05thread:03e8;");
    let wrong = gdb.rip();

    assert_eq!(gdb.go("bs"), "T05thread:03e8;");
    let before = gdb.rip();
    assert_eq!(gdb.go("bc").get(..3), Some("T05"));
    assert_eq!(gdb.ask(&format!("Z0,{before:x},1")), "OK");
    assert_eq!(gdb.go(appoint), "OK");
    assert_eq!(gdb.go(CONTINUE), "T05thread:03e8;swbreak:;");
    assert_eq!(gdb.rip(), before);
    // The appointment was for one way.
    assert_eq!(gdb.go(STEP), "T05thread:03e8;");
    assert_eq!(gdb.rip(), wrong);
}

/// gdb gets what it needs to find symbols by itself.
#[test]
fn the_file_and_the_auxiliary_vector_are_known() {
    let mut gdb = Client::start(&[CASE]);
    let path = gdb.ask("qXfer:exec-file:read::0,1000");
    assert!(
        path.ends_with("/fp-loses-the-caller-before-push-rbp"),
        "{path}"
    );
    assert!(std::path::Path::new(&path[1..]).is_file(), "{path}");
    assert_eq!(gdb.ask("qXfer:exec-file:read::1000,1000"), "l");
    // Its end: AT_NULL.
    gdb.server.send(&framed(b"qXfer:auxv:read::0,10"));
    let entry: Vec<u8> = (0..21).map(|_| gdb.server.byte()).collect();
    assert!(entry.starts_with(b"$m"), "{entry:?}");
}
