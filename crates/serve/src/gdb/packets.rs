//! Packets in a stream of bytes: `$BODY#SUM`, acknowledgements, and interrupts.

/// The maximum length of a packet's body, bytes; clients are told.
pub const PACKET_BYTES_MAX: usize = 0x4000;

/// What the bytes of a client mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A packet, without its frame.
    Packet(Vec<u8>),
    /// A packet that cannot be understood, and why.
    Broken(&'static str),
    /// The client did not understand the last answer.
    Again,
    /// Stop what runs.
    Interrupt,
}

/// Takes a stream of bytes apart.
#[derive(Default, Debug)]
pub struct Unframer {
    state: State,
    body: Vec<u8>,
    is_too_long: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    /// Between packets.
    #[default]
    Outside,
    Body,
    /// At the first digit of the sum.
    Sum,
    /// At the second digit; the first is this.
    SumAfter(u8),
}

impl Unframer {
    /// Takes the next byte. Returns what it completes.
    pub fn push(&mut self, byte: u8) -> Option<Event> {
        match (self.state, byte) {
            // What begins again inside of a packet was cut off before.
            (State::Outside | State::Body, b'$') => self.begin(),
            (State::Outside, b'-') => return Some(Event::Again),
            (State::Outside, 0x03) => return Some(Event::Interrupt),
            // Acknowledgements, and what a terminal adds.
            (State::Outside, _) => {}
            (State::Body, b'#') => self.state = State::Sum,
            (State::Body, _) if self.body.len() < PACKET_BYTES_MAX => self.body.push(byte),
            (State::Body, _) => self.is_too_long = true,
            (State::Sum, _) => self.state = State::SumAfter(byte),
            (State::SumAfter(first), _) => return Some(self.end(first, byte)),
        }
        None
    }

    fn begin(&mut self) {
        self.state = State::Body;
        self.body.clear();
        self.is_too_long = false;
    }

    fn end(&mut self, first: u8, second: u8) -> Event {
        self.state = State::Outside;
        if self.is_too_long {
            return Event::Broken("the packet is longer than the size that was told");
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (Some(high), Some(low)) = (digit(first), digit(second)) else {
            return Event::Broken("the packet's checksum is not two hexadecimal digits");
        };
        if u32::from(sum(&self.body)) != high << 4 | low {
            return Event::Broken("the packet's checksum is wrong");
        }
        Event::Packet(std::mem::take(&mut self.body))
    }
}

/// The sum of a body.
fn sum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// The packet with this body.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut packet = vec![b'$'];
    packet.extend_from_slice(body);
    packet.extend_from_slice(format!("#{:02x}", sum(body)).as_bytes());
    packet
}

/// An answer that says in words what is wrong.
pub(super) fn refusal(text: &str) -> Vec<u8> {
    let safe = |c: char| match c {
        ' '..='~' if !"#$}*".contains(c) => c,
        _ => '?',
    };
    let text: String = text.chars().map(safe).collect();
    framed(format!("E.{text}").as_bytes())
}

/// A text for the client's console.
pub(super) fn console(text: &str) -> Vec<u8> {
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    framed(format!("O{digits}").as_bytes())
}

#[cfg(test)]
mod tests;
