//! Packets as bytes: `$data#checksum`, with escapes and run-length encoding.

/// Maximum packet length accepted, before and after expanding runs, in bytes.
pub const PACKET_MAX: usize = 64 << 10;
/// Maximum number of bytes skipped between packets.
const BETWEEN_MAX: usize = PACKET_MAX;
/// Value with which an escaped byte is XORed.
const ESCAPE: u8 = 0x20;
/// A run's count character is the number of repeats plus this.
const RUN_BIAS: u8 = 29;

/// What arrived from the stub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A packet's data, unescaped and expanded.
    Packet(Vec<u8>),
    /// `%`: an unsolicited packet.
    Notification(Vec<u8>),
    /// `+`
    Ack,
    /// `-`
    Nak,
}

/// Why bytes are not a valid packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketProblem {
    /// The packet does not end.
    #[error("a packet of more than {PACKET_MAX} bytes")]
    TooLong,
    /// The checksum does not match.
    #[error("the checksum sent is {given:#04x}, the computed one {sum:#04x}")]
    Checksum {
        /// The checksum sent.
        given: u8,
        /// The checksum computed.
        sum: u8,
    },
    /// The checksum is not two hex digits.
    #[error("the checksum is not two hex digits")]
    NoChecksum,
    /// A run without a character to repeat, or with an invalid count.
    #[error("an invalid run of characters")]
    Run,
    /// An escape at the end of the packet.
    #[error("an escape at the end of the packet")]
    Escape,
    /// Too many bytes that are not a packet.
    #[error("more than {BETWEEN_MAX} bytes that are not a packet")]
    NoPacket,
}

impl PacketProblem {
    /// Whether sending the packet again may help.
    pub(super) const fn is_damage(self) -> bool {
        !matches!(self, PacketProblem::TooLong | PacketProblem::NoPacket)
    }
}

/// Splits a stream of bytes into packets.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Bytes before this have been consumed.
    at: usize,
    between: usize,
}

impl Decoder {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if it is complete.
    ///
    /// # Errors
    /// If it is not a valid packet. The next call continues after it.
    pub fn frame(&mut self) -> Option<Result<Frame, PacketProblem>> {
        loop {
            let rest = &self.bytes[self.at..];
            let first = *rest.first()?;
            if matches!(first, b'$' | b'%') {
                return self.packet(first == b'$');
            }
            self.at += 1;
            match first {
                b'+' => return Some(Ok(Frame::Ack)),
                b'-' => return Some(Ok(Frame::Nak)),
                _ => self.between += 1,
            }
            if self.between > BETWEEN_MAX {
                self.between = 0;
                return Some(Err(PacketProblem::NoPacket));
            }
        }
    }

    fn packet(&mut self, asked_for: bool) -> Option<Result<Frame, PacketProblem>> {
        let rest = &self.bytes[self.at + 1..];
        let searched = &rest[..rest.len().min(PACKET_MAX)];
        let Some(end) = searched.iter().position(|b| *b == b'#') else {
            if searched.len() < PACKET_MAX {
                return None;
            }
            self.at = self.bytes.len();
            return Some(Err(PacketProblem::TooLong));
        };
        let sum = rest.get(end + 1..end + 3)?;
        let result = data(&rest[..end], sum).map(|data| {
            if asked_for {
                Frame::Packet(data)
            } else {
                Frame::Notification(data)
            }
        });
        self.at += end + 4;
        self.between = 0;
        Some(result)
    }
}

fn data(raw: &[u8], sum: &[u8]) -> Result<Vec<u8>, PacketProblem> {
    let given = std::str::from_utf8(sum).ok();
    let given = given.filter(|s| s.bytes().all(|b| b.is_ascii_hexdigit()));
    let given = given.and_then(|s| u8::from_str_radix(s, 16).ok());
    let given = given.ok_or(PacketProblem::NoChecksum)?;

    // Over the bytes as sent, with their escapes and runs (gdb manual, "Overview").
    let sum = checksum(raw);
    if given != sum {
        return Err(PacketProblem::Checksum { given, sum });
    }

    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'}' => out.push(bytes.next().ok_or(PacketProblem::Escape)? ^ ESCAPE),
            b'*' => {
                // A run repeats a byte at least three times, and its count character is printable
                // (gdb manual, "Overview").
                let count = bytes.next().and_then(|n| n.checked_sub(RUN_BIAS));
                let count = count.filter(|n| (3..=126 - RUN_BIAS).contains(n));
                let (Some(count), Some(&last)) = (count, out.last()) else {
                    return Err(PacketProblem::Run);
                };
                out.resize(out.len() + usize::from(count), last);
            }
            byte => out.push(byte),
        }

        // Runs expand, so the raw length does not bound this one.
        if out.len() > PACKET_MAX {
            return Err(PacketProblem::TooLong);
        }
    }

    Ok(out)
}

fn checksum(raw: &[u8]) -> u8 {
    raw.iter().fold(0, |sum: u8, b| sum.wrapping_add(*b))
}

/// Encodes a packet with this data.
pub fn encode(data: &[u8]) -> Vec<u8> {
    let mut out = vec![b'$'];
    for &byte in data {
        match byte {
            b'#' | b'$' | b'}' | b'*' => out.extend([b'}', byte ^ ESCAPE]),
            byte => out.push(byte),
        }
    }
    let sum = checksum(&out[1..]);
    out.extend(format!("#{sum:02x}").bytes());
    out
}

/// Decodes hex digits.
pub(super) fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let bytes = pairs.iter().map(|&[a, b]| Some(digit(a)? << 4 | digit(b)?));
    bytes.collect()
}
