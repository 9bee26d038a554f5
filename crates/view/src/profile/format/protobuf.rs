//! An encoder for protocol buffer messages.
//!
//! The encoding: <https://protobuf.dev/programming-guides/encoding/>. Fields with their default
//! value are left out.

/// A message of protocol buffers, as it is encoded.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// The encoded bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a number or a boolean.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    /// Adds packed numbers.
    pub(super) fn numbers(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut packed = Message::default();
        for value in values {
            packed.varint(value);
        }
        if !packed.bytes.is_empty() {
            self.data(field, &packed.bytes);
        }
    }

    /// Adds a string, bytes or an encoded message, even if it is empty.
    pub(super) fn data(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
