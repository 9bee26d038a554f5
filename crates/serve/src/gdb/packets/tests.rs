//! Streams of packets, whole and broken.

use super::*;

fn events(bytes: &[u8]) -> Vec<Event> {
    let mut unframer = Unframer::default();
    bytes
        .iter()
        .filter_map(|byte| unframer.push(*byte))
        .collect()
}

#[test]
fn packets_come_out_of_a_stream() {
    let mut bytes = b"+".to_vec();
    bytes.extend(framed(b"qSupported"));
    bytes.extend(b"-\x03");
    bytes.extend(framed(b""));
    assert_eq!(
        events(&bytes),
        [
            Event::Packet(b"qSupported".to_vec()),
            Event::Again,
            Event::Interrupt,
            Event::Packet(Vec::new())
        ]
    );
}

#[test]
fn a_packet_that_was_cut_off_is_forgotten() {
    assert_eq!(events(b"$m40$g#67"), [Event::Packet(b"g".to_vec())]);
}

#[test]
fn broken_packets_are_told_and_the_next_is_read() {
    for broken in [&b"$g#00"[..], b"$g#zz"] {
        let found = events(&[broken, b"$g#67"].concat());
        assert!(matches!(found[0], Event::Broken(_)), "{found:?}");
        assert_eq!(found[1], Event::Packet(b"g".to_vec()));
    }
}

#[test]
fn a_packet_of_any_length_needs_bounded_memory() {
    let mut unframer = Unframer::default();
    assert_eq!(unframer.push(b'$'), None);
    for _ in 0..3 * PACKET_BYTES_MAX {
        assert_eq!(unframer.push(b'a'), None);
    }
    assert!(unframer.body.capacity() <= 2 * PACKET_BYTES_MAX);
    assert!([b'#', b'0', b'0'].map(|byte| unframer.push(byte))[2].is_some());
}

#[test]
fn a_body_of_the_maximum_length_is_a_packet_and_one_more_byte_is_not() {
    let body = vec![b'a'; PACKET_BYTES_MAX];
    assert_eq!(events(&framed(&body)), [Event::Packet(body.clone())]);
    let longer = [&body[..], b"a"].concat();
    assert!(matches!(events(&framed(&longer))[..], [Event::Broken(_)]));
}

#[test]
fn a_refusal_has_no_byte_that_frames_a_packet() {
    let packet = refusal("a#b$c}d*e\nf");
    assert_eq!(events(&packet), [Event::Packet(b"E.a?b?c?d?e?f".to_vec())]);
}
