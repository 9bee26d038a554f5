//! A claim that is wrong only on a way that may not exist, of a [`FunctionLine`](super::FunctionLine).

use super::WrongRowLine;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use unwind_sim_judge::hex::hex;
use unwind_sim_tables::proof::verdict::Guess;

/// What would be wrong, the way there, and where that way parts from others. Addresses are svmas, in hex.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct GuessLine {
    /// The first instruction at which it was found.
    address: String,
    /// The register that the claim is about; none if the frame does not fit the row at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    register: Option<&'static str>,
    /// What the row's rule gives on that way.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    /// The instruction that would overwrite the claim's slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    /// The jumps on the way from the function's entry: from and to.
    path: Vec<[String; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fork: Option<ForkLine>,
}

/// Where the way parts from others: the last such place before the store, or what was guessed.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct ForkLine {
    /// The instruction.
    address: String,
    /// Where the way goes on.
    to: String,
    /// Where the other one does; none for a jump whose targets are not all known.
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<String>,
}

impl GuessLine {
    pub(super) fn new(guess: &Guess) -> GuessLine {
        let claim = guess.claim.as_ref();
        GuessLine {
            address: hex(guess.pc),
            register: claim.map(|claim| WrongRowLine::register(claim.subject)),
            found: claim.map(|claim| claim.found.to_string()),
            store: guess.store.map(hex),
            path: guess.path.iter().map(|(a, b)| [hex(*a), hex(*b)]).collect(),
            fork: guess.fork.map(|fork| ForkLine {
                address: hex(fork.at),
                to: hex(fork.to),
                other: fork.other.map(hex),
            }),
        }
    }
}
