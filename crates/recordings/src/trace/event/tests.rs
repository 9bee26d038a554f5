//! Names and images of events, at the limits of the format and just beyond.

use super::*;

fn refused(event: &Event, images: u32) -> Option<String> {
    check(event, images).err().map(|error| error.to_string())
}

fn reread(event: &Event, images: usize) -> Result<(u32, Event), &'static str> {
    let mut bytes = Vec::new();
    encode(&mut bytes, 3, event);
    decode(&mut Cursor::new(&bytes, 0), images).map_err(|bad| bad.what)
}

fn map(image: Option<u32>, name: usize) -> Event {
    Event::Map {
        pid: 1,
        range: 0x1000..0x2000,
        bias: 0,
        image: image.map(ImageIndex),
        name: "x".repeat(name),
    }
}

fn comm(name: usize) -> Event {
    Event::Comm {
        pid: 1,
        tid: 2,
        name: "x".repeat(name),
    }
}

#[test]
fn a_name_may_have_65536_bytes_and_not_one_more() {
    for event in [map(None, 65_536), comm(65_536)] {
        assert_eq!(refused(&event, 0), None);
        assert_eq!(reread(&event, 0), Ok((3, event)));
    }
    for event in [map(None, 65_537), comm(65_537)] {
        let message = "bytes in the name of an event: 65537 is more than the 65536 that a trace \
                       can hold";
        assert_eq!(refused(&event, 0).as_deref(), Some(message));
        let what = "a name or field is longer than the format allows";
        assert_eq!(reread(&event, 0), Err(what));
    }
}

#[test]
fn a_mapping_is_of_an_image_that_was_added() {
    let event = map(Some(2), 1);
    assert_eq!(refused(&event, 3), None);
    let message = "image 2 was not added to the trace";
    assert_eq!(refused(&event, 2).as_deref(), Some(message));
    assert_eq!(reread(&event, 3), Ok((3, event.clone())));
    let what = "a mapping of a missing image";
    assert_eq!(reread(&event, 2), Err(what));
}
