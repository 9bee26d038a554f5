//! Tests of the client against hostile and broken stubs.

use super::packet::unhex;
use super::{
    Client, ClientOptions, Decoder, Frame, GdbError, Layout, OtherThreads, PACKET_MAX,
    PacketProblem, encode,
};
use crate::random::Random;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Returns a stub's raw answer to a packet.
type Answers = fn(&str) -> Vec<u8>;

/// Serves one connection; `answers` returns raw bytes for each packet.
fn stub(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        if let Ok((stream, _)) = listener.accept() {
            let _ = stream.set_nodelay(true);
            serve(stream, answers);
        }
    });
    address
}

fn serve(mut stream: TcpStream, answers: Answers) {
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        decoder.push(&buffer[..len]);
        while let Some(frame) = decoder.frame() {
            let Ok(Frame::Packet(data)) = frame else {
                continue;
            };
            let answer = answers(&String::from_utf8_lossy(&data));
            if stream
                .write_all(b"+")
                .and_then(|()| stream.write_all(&answer))
                .is_err()
            {
                return;
            }
        }
    }
}

fn options() -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_millis(300),
    }
}

fn packet(data: &str) -> Vec<u8> {
    encode(data.as_bytes())
}

const DESCRIPTION: &str = r#"l<target><!-- <reg name="no" bitsize="64"/> -->
<reg name="rip" bitsize="64"/><reg bitsize="32" name="eflags"/><reg name='rsp' bitsize='64'/>
<reg name="rbp" bitsize="64"/></target>"#;

/// A well-behaved stub.
fn good(packet_data: &str) -> Vec<u8> {
    match packet_data {
        d if d.starts_with("qSupported") => {
            packet("PacketSize=100;qXfer:features:read+;QStartNoAckMode+")
        }
        "QStartNoAckMode" | "Z0,1234,1" | "D" => packet("OK"),
        d if d.starts_with("qXfer") => packet(DESCRIPTION),
        "?" | "s" => packet("T05thread:02;"),
        // A run: "11" and three more.
        "g" => {
            let raw = "88776655443322ff46020000xxxxxxxxxxxxxxxx1*,";
            let mut out = format!("${raw}").into_bytes();
            let sum = raw.bytes().fold(0u8, |s, b| s.wrapping_add(b));
            out.extend(format!("#{sum:02x}").bytes());
            out
        }
        "m1000,8" => packet("0102030405060708"),
        d if d.starts_with('m') => packet("E14"),
        _ => packet(""),
    }
}

#[test]
fn a_stub_is_asked() {
    let mut client = Client::connect(&stub(good), options()).expect("a stub");
    let stop = client.step("02", OtherThreads::Wait).expect("a step");
    assert_eq!((stop.signal, &*stop.thread), (5, "02"));
    assert_eq!(client.word(0x1000).expect("a word"), 0x0807_0605_0403_0201);
    assert!(matches!(
        client.read(0x2000, 4),
        Err(GdbError::Refused { .. })
    ));
    client.set_breakpoint(0x1234).expect("by an instruction");
    assert!(matches!(
        client.set_breakpoint(0x9),
        Err(GdbError::Refused { .. })
    ));
    assert!(matches!(
        client.registers(),
        Err(GdbError::NoRegister("rsp"))
    ));
    client.detach().expect("let go");
}

#[test]
fn a_description_says_where_registers_are() {
    let layout = Layout::from_description(DESCRIPTION, &mut |_| None).expect("x86-64");
    let digits = b"88776655443322ff4602000001000000000000000200000000000000".to_vec();
    let registers = super::Registers::new(layout.into(), digits);
    assert_eq!(registers.get("rip"), Some(0xff22_3344_5566_7788));
    assert_eq!(registers.get("eflags"), Some(0x246));
    assert_eq!(registers.get("rsp"), Some(1));
    assert_eq!(registers.get("rbp"), Some(2));
    assert_eq!(registers.get("no"), None);
    let include = r#"<target><xi:include href="core.xml"/></target>"#;
    let found = Layout::from_description(include, &mut |name| {
        (name == "core.xml").then(|| DESCRIPTION.to_owned())
    });
    assert!(found.is_some());
    assert_eq!(Layout::from_description(include, &mut |_| None), None);
}

/// Longer than any of these takes; what waits for an answer that does not come takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connecting must fail with the expected error, and soon.
fn ends(answers: Answers, is_expected: fn(&GdbError) -> bool) {
    let begin = Instant::now();
    let error = Client::connect(&stub(answers), options()).expect_err("no stub");
    assert!(is_expected(&error), "{error}");
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn hostile_stubs_are_errors() {
    ends(|_| Vec::new(), |e| matches!(e, GdbError::Silent { .. }));

    // A packet that does not end.
    ends(
        |_| [b"$".to_vec(), vec![b'0'; 4 * PACKET_MAX]].concat(),
        |e| {
            matches!(
                e,
                GdbError::Packet {
                    problem: PacketProblem::TooLong,
                    ..
                }
            )
        },
    );

    // Bytes that are not packets.
    ends(
        |_| vec![b'z'; 8 * PACKET_MAX],
        |e| {
            matches!(
                e,
                GdbError::Packet {
                    problem: PacketProblem::NoPacket,
                    ..
                }
            )
        },
    );
    ends(
        |_| b"$OK#00".to_vec(),
        |e| matches!(e, GdbError::Silent { .. } | GdbError::Packet { .. }),
    );

    // Endless stop replies, when something else was asked.
    ends(
        |_| packet("T05").repeat(100),
        |e| matches!(e, GdbError::Unexpected { .. }),
    );
    ends(
        |d| match d {
            d if d.starts_with("qS") => packet("PacketSize=zz;qXfer:features:read+"),
            d if d.starts_with("qX") => packet("m<"),
            _ => packet("W00"),
        },
        |e| matches!(e, GdbError::Ended(_)),
    );

    // The stub serves one client, so the second one gets nothing.
    let address = stub(good);
    assert!(Client::connect(&address, options()).is_ok());
    assert!(matches!(
        Client::connect(&address, options()),
        Err(GdbError::Connect { .. }
            | GdbError::Closed { .. }
            | GdbError::Io { .. }
            | GdbError::Silent { .. })
    ));
}

#[test]
fn wrong_lengths_are_errors() {
    fn answers(data: &str) -> Vec<u8> {
        match data {
            "m10,8" => packet("01"),
            "m11,7" => packet("010203040506070809"),
            "m20,8" => packet(""),
            "m30,8" => packet("0102zz"),
            "m40,8" => packet("123"),
            d => good(d),
        }
    }
    let mut client = Client::connect(&stub(answers), options()).expect("a stub");
    for at in [0x10, 0x20, 0x30, 0x40] {
        let error = client.read(at, 8).expect_err("no memory");
        assert!(matches!(error, GdbError::Unexpected { .. }), "{error}");
    }
}

#[test]
fn packets_are_cut_and_written_out() {
    let frames = |bytes: &[u8]| {
        let mut decoder = Decoder::default();
        // Byte by byte, as they may arrive from the network.
        let mut out = Vec::new();
        for byte in bytes {
            decoder.push(&[*byte]);
            out.extend(std::iter::from_fn(|| decoder.frame()));
        }
        out
    };

    assert_eq!(
        frames(b"+$0* #7a"),
        [Ok(Frame::Ack), Ok(Frame::Packet(b"0000".to_vec()))]
    );

    let data: Vec<u8> = (0..=255).collect();
    assert_eq!(frames(&encode(&data)), [Ok(Frame::Packet(data))]);

    // `OK` is 0x4f and 0x4b.
    let sum = PacketProblem::Checksum {
        given: 0,
        sum: 0x9a,
    };
    assert_eq!(frames(b"$OK#00-"), [Err(sum), Ok(Frame::Nak)]);
    assert_eq!(frames(b"$OK#+1"), [Err(PacketProblem::NoChecksum)]);
    assert_eq!(frames(b"$* #4a"), [Err(PacketProblem::Run)]);
    assert_eq!(frames(b"$a}#de"), [Err(PacketProblem::Escape)]);

    assert_eq!(unhex(b"0fF0"), Some(vec![0x0f, 0xf0]));
    assert_eq!(unhex(b"0"), None);
}

/// What a stub with threads is sent.
#[test]
fn one_thread_is_stepped() {
    fn answers(data: &str) -> Vec<u8> {
        match data {
            "vCont?" => packet("vCont;c;C;s;S"),
            "vCont;s:02" => packet("T05thread:02;"),
            "vCont;s:02;c" => packet("T05thread:01;"),
            "vCont;c:02" => packet("T02thread:02;"),
            "c" => packet("T06thread:03;"),
            "s" => packet("T07"),
            "Hg03" => packet("OK"),
            "Hg04" => packet("E22"),
            d => good(d),
        }
    }

    let mut client = Client::connect(&stub(answers), options()).expect("a stub");
    assert_eq!(client.first_stop().thread, "02");

    let mut stop = |thread: &str, others, steps: bool| {
        let most = Duration::from_secs(1);
        let stop = if steps {
            client.step(thread, others)
        } else {
            client.resume(thread, others, most)
        };
        let stop = stop.expect("a stop");
        (stop.signal, stop.thread)
    };

    let is = |signal: u8, thread: &str| (signal, thread.to_owned());
    assert_eq!(stop("02", OtherThreads::Wait, true), is(5, "02"));
    assert_eq!(stop("02", OtherThreads::Run, true), is(5, "01"));
    assert_eq!(stop("02", OtherThreads::Wait, false), is(2, "02"));
    assert_eq!(stop("02", OtherThreads::Run, false), is(6, "03"));
    // A stub that names no thread.
    assert_eq!(stop("", OtherThreads::Wait, true), is(7, ""));

    // A stub may refuse a thread that has ended.
    client.select("03").expect("a thread");
    let refused = client.select("04");
    assert!(matches!(refused, Err(GdbError::Refused { .. })));
}

/// Physical memory is read on request, and later reads are of virtual memory again, even after a
/// failure.
#[test]
fn physical_memory_is_read() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static PHYSICAL: AtomicBool = AtomicBool::new(false);
    fn answers(data: &str) -> Vec<u8> {
        let physical = PHYSICAL.load(Ordering::Relaxed);
        match data {
            "Qqemu.PhyMemMode:1" => PHYSICAL.store(true, Ordering::Relaxed),
            "Qqemu.PhyMemMode:0" => PHYSICAL.store(false, Ordering::Relaxed),
            "m1000,8" if physical => return packet("0908070605040302"),
            d => return good(d),
        }
        packet("OK")
    }
    let mut client = Client::connect(&stub(answers), options()).expect("a stub");
    assert_eq!(client.word(0x1000).expect("a word"), 0x0807_0605_0403_0201);
    let physical = client.read_physical(0x1000, 8).expect("a word");
    assert_eq!(physical, [9, 8, 7, 6, 5, 4, 3, 2]);
    assert!(client.read_physical(0x2000, 8).is_err());
    assert_eq!(client.word(0x1000).expect("a word"), 0x0807_0605_0403_0201);
    // A stub without this mode.
    let mut client = Client::connect(&stub(good), options()).expect("a stub");
    let refused = client.read_physical(0x1000, 8);
    assert!(matches!(refused, Err(GdbError::Refused { .. })));
}

/// A stub that greets properly, and then gives `answers` to every request.
fn turns(answers: Answers, is_expected: fn(&GdbError) -> bool) {
    let asked: [fn(&mut Client) -> Option<GdbError>; 7] = [
        |c| c.registers().err(),
        |c| c.read(0x1000, 8).err(),
        |c| c.set_breakpoint(0x1234).err(),
        |c| c.step("02", OtherThreads::Run).err(),
        |c| c.resume("02", OtherThreads::Wait, options().timeout).err(),
        |c| c.threads().err(),
        |c| c.accept("Qx").err(),
    ];
    for ask in asked {
        let mut client = Client::connect(&stub(answers), options()).expect("a stub");
        let begin = Instant::now();
        let error = ask(&mut client).expect("an error");
        assert!(is_expected(&error), "{error}");
        assert!(begin.elapsed() < PATIENCE, "{error}");
    }
}

/// Whether this packet still belongs to the greeting.
fn greets(data: &str) -> bool {
    let first = data.starts_with('q') && data != "qfThreadInfo";
    first || matches!(data, "QStartNoAckMode" | "?" | "vCont?")
}

#[test]
fn stubs_that_turn_are_errors() {
    // Silence.
    turns(
        |d| if greets(d) { good(d) } else { Vec::new() },
        |e| matches!(e, GdbError::Silent { .. }),
    );

    // A wrong checksum, each time.
    turns(
        |d| {
            if greets(d) {
                good(d)
            } else {
                b"$OK#00".to_vec()
            }
        },
        |e| {
            let problem = PacketProblem::Checksum {
                given: 0,
                sum: 0x9a,
            };
            matches!(e, GdbError::Packet { problem: p, .. } if *p == problem)
        },
    );

    // `E01` to everything.
    turns(
        |d| if greets(d) { good(d) } else { packet("E01") },
        |e| matches!(e, GdbError::Refused { .. } | GdbError::Unexpected { .. }),
    );

    // A packet without an end.
    turns(
        |d| {
            if greets(d) {
                good(d)
            } else {
                [b"$".to_vec(), vec![b'0'; 4 * PACKET_MAX]].concat()
            }
        },
        |e| {
            let problem = PacketProblem::TooLong;
            matches!(e, GdbError::Packet { problem: p, .. } if *p == problem)
        },
    );

    // Half a packet, and nothing more.
    turns(
        |d| {
            if greets(d) {
                good(d)
            } else {
                b"$T05thr".to_vec()
            }
        },
        |e| matches!(e, GdbError::Silent { .. }),
    );
}

/// A stub that dies in the middle of an answer.
#[test]
fn a_stub_that_dies_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let died = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut decoder = Decoder::default();
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            decoder.push(&buffer[..len]);
            while let Some(frame) = decoder.frame() {
                let Ok(Frame::Packet(data)) = frame else {
                    continue;
                };
                let data = String::from_utf8_lossy(&data).into_owned();
                if !greets(&data) {
                    let _ = stream.write_all(b"+$0102");
                    return;
                }
                let _ = stream.write_all(&[b"+".to_vec(), good(&data)].concat());
            }
        }
    });

    // Half an answer, and then nothing: it must not be waited for until the timeout.
    let mut client = Client::connect(&address, options()).expect("a stub");
    let begin = Instant::now();
    let is_dead = |e: GdbError| matches!(e, GdbError::Closed { .. } | GdbError::Io { .. });
    assert!(is_dead(client.read(0x1000, 8).expect_err("half an answer")));
    died.join().expect("it is dead");
    assert!(is_dead(
        client.step("02", OtherThreads::Run).expect_err("nobody")
    ));
    assert!(is_dead(client.registers().expect_err("nobody")));
    assert!(begin.elapsed() < PATIENCE);
}

/// Whatever arrives, the decoder does not panic, stays bounded, and terminates.
#[test]
fn any_bytes_are_survived() {
    let mut random = Random::new(1);

    // The characters of packets, so that most bytes lead somewhere.
    const LIKELY: &[u8] = b"$#}*%+-0123456789abcdefOKTE\xff ";

    // Whatever comes, a decoder may not give more frames than bytes, nor larger ones than allowed.
    for _ in 0..2000 {
        let mut decoder = Decoder::default();
        let mut left = 200;
        for _ in 0..random.below(8) {
            let bytes: Vec<u8> = (0..random.below(40)).map(|_| random.pick(LIKELY)).collect();
            decoder.push(&bytes);
            while let Some(frame) = decoder.frame() {
                left -= 1;
                assert!(left > 0, "more frames than bytes");
                if let Ok(Frame::Packet(data)) = frame {
                    assert!(data.len() <= PACKET_MAX);
                }
            }
        }
    }
}
