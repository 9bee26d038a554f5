//! Messages in a stream of bytes: a header with `Content-Length`, an empty line, and JSON.

use serde_json::Value;

/// The maximum length of a message, bytes. Requests are short.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The maximum length of the lines before a message, bytes.
const HEADER_BYTES_MAX: usize = 1 << 12;

/// What the bytes of a client mean.
#[derive(Clone, PartialEq, Debug)]
pub enum Received {
    /// A message.
    Message(Value),
    /// A message that cannot be understood, and why; the next one may be.
    Broken(String),
    /// Where the next message starts is not known, and why.
    Lost(String),
}

/// Takes a stream of bytes apart.
#[derive(Default, Debug)]
pub struct Unframer {
    header: Vec<u8>,
    body: Vec<u8>,
    /// The length of the body, once the header is complete.
    length: Option<usize>,
    is_lost: bool,
}

impl Unframer {
    /// Takes the next byte. Returns what it completes.
    pub fn push(&mut self, byte: u8) -> Option<Received> {
        if self.is_lost {
            return None;
        }
        let Some(length) = self.length else {
            return self.of_header(byte);
        };
        self.body.push(byte);
        (self.body.len() >= length).then(|| self.end())
    }

    fn of_header(&mut self, byte: u8) -> Option<Received> {
        self.header.push(byte);

        // A client that never ends its header must not fill the memory.
        if self.header.len() > HEADER_BYTES_MAX {
            return Some(self.lose(format!(
                "the header of a message is longer than {HEADER_BYTES_MAX} bytes"
            )));
        }
        if !self.header.ends_with(b"\r\n\r\n") {
            return None;
        }

        let header = String::from_utf8_lossy(&std::mem::take(&mut self.header)).into_owned();
        let fields = header.lines().filter_map(|line| line.split_once(':'));

        // The protocol has no other field; one that comes all the same is ignored.
        let mut lengths =
            fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case("content-length"));
        let Some((_, length)) = lengths.next() else {
            return Some(self.lose("the header of a message has no Content-Length".to_owned()));
        };
        let length = length.trim();
        match length.parse() {
            // Its end is known all the same, so the session can go on.
            Ok(0) => Some(Received::Broken("a message is empty".to_owned())),
            Ok(bytes) if bytes <= MESSAGE_BYTES_MAX => {
                self.length = Some(bytes);
                None
            }
            // A number, of any length: what follows is not waited for.
            _ if !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit()) => {
                Some(self.lose(format!(
                    "a message of {length} bytes is too long; at most {MESSAGE_BYTES_MAX} are read"
                )))
            }
            _ => Some(self.lose(format!("Content-Length is {length:?}, not a number"))),
        }
    }

    fn lose(&mut self, why: String) -> Received {
        self.is_lost = true;
        Received::Lost(why)
    }

    fn end(&mut self) -> Received {
        self.length = None;
        let body = std::mem::take(&mut self.body);
        match serde_json::from_slice(&body) {
            Ok(message) => Received::Message(message),
            Err(error) => Received::Broken(format!("a message is not JSON: {error}")),
        }
    }
}

/// The message as bytes of the stream.
pub fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests;
