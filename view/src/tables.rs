//! Unwind tables as text and JSON Lines: rows as equations, and differences between tables.
//!
//! The forms of other tools (readelf, objdump, objtool) are in the room `tables`.

mod equations;
pub mod functions;
mod names;

pub use equations::{Form, write};
