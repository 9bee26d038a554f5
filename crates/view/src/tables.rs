//! Unwind tables as text and JSON Lines: rows as equations or beside the code, differences between
//! tables, and what was proven of them.
//!
//! The forms of other tools (readelf, objdump, objtool) are in the room `tables`.

pub(crate) mod code;
mod difference;
mod equations;
pub mod functions;
mod guess;
mod index;
mod known;
mod listing;
pub(crate) mod names;
pub mod open;
pub(crate) mod proof;
mod sarif;
mod score;

pub(crate) use code::InstructionText;
pub use difference::{
    Compared, write_json as write_differences_json, write_text as write_differences,
};
pub use equations::{Form, write};
pub use known::{KnownError, KnownRows};
pub use listing::write_listing;
pub use proof::{ProofDetail, write_json as write_proof_json, write_text as write_proof};
pub use sarif::Sarif;
pub use score::write as write_score;
