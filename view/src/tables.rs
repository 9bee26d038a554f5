//! Unwind tables as text and JSON Lines: rows as equations, and differences between tables.
//!
//! The forms of other tools (readelf, objdump, objtool) are in the room `tables`.

mod code;
mod difference;
mod equations;
pub mod functions;
mod names;

pub(crate) use code::Shown;
pub use difference::{
    Compared, write_json as write_differences_json, write_text as write_differences,
};
pub use equations::{Form, write};
