//! Streams of messages, whole and broken.

use super::*;
use serde_json::json;

fn received(bytes: &[u8]) -> Vec<Received> {
    let mut unframer = Unframer::default();
    bytes
        .iter()
        .filter_map(|byte| unframer.push(*byte))
        .collect()
}

#[test]
fn messages_come_out_of_a_stream() {
    let (one, two) = (json!({"seq": 1}), json!(["ä"]));
    let mut bytes = framed(&one);
    bytes.extend(
        b"X-Other: 1\r\ncontent-length:5\r\n\r\n[\"\xc3\xa4\"]x"
            .split_last()
            .unwrap()
            .1,
    );
    let found = received(&bytes);
    assert_eq!(found[0], Received::Message(one));
    // Five bytes are not all of it.
    assert!(matches!(found[1], Received::Broken(_)), "{found:?}");
    assert_eq!(received(&framed(&two)), [Received::Message(two)]);
}

#[test]
fn what_is_not_json_is_told_and_the_next_message_is_read() {
    let deep = "[".repeat(100_000);
    for body in ["{", "nonsense", deep.as_str()] {
        let broken = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        let bytes = [broken.as_bytes(), &framed(&json!(1))].concat();
        let found = received(&bytes);
        assert!(matches!(&found[0], Received::Broken(_)), "{found:?}");
        assert_eq!(found[1], Received::Message(json!(1)));
    }
}

#[test]
fn a_length_of_any_size_needs_no_memory() {
    for length in [
        "1048577",
        "1000000000000000000",
        "99999999999999999999999999",
    ] {
        let bytes = format!("Content-Length: {length}\r\n\r\n{{}}");
        let found = received(bytes.as_bytes());
        let [Received::Lost(why)] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(why.contains(length), "{why}");
    }
    assert!(matches!(
        received(b"Content-Length: -1\r\n\r\n")[..],
        [Received::Lost(_)]
    ));
    assert!(matches!(received(b"\r\n\r\n")[..], [Received::Lost(_)]));
    assert!(matches!(
        received(&[b'a'; 1 << 16])[..],
        [Received::Lost(_)]
    ));
}

#[test]
fn a_message_of_the_maximum_length_is_read() {
    let text = "a".repeat(MESSAGE_BYTES_MAX - 2);
    let message = json!(text);
    assert_eq!(received(&framed(&message)), [Received::Message(message)]);
}
