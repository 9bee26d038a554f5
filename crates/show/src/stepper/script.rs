//! Plays keys without a terminal, and prints the screens as text.

use super::screen::draw;
use super::{Key, KeyError, Stepper, parse_keys};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::io::Write;
use unwind_sim_judge::input::InputError;

/// Why a script cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It has a key that does not exist.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The recording cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The screen cannot be written.
    #[error(transparent)]
    Write(#[from] std::io::Error),
}

/// Presses the keys of `script`, and writes the screen of `columns` by `rows` after each line. A
/// script without lines shows the first screen.
///
/// # Errors
/// If a key does not exist, the recording cannot be read, or `out` fails.
pub fn play(
    stepper: &mut Stepper<'_>,
    script: &str,
    (columns, rows): (u16, u16),
    out: &mut dyn Write,
) -> Result<(), ScriptError> {
    let mut lines: Vec<Vec<Key>> = parse_keys(script)?;
    if lines.is_empty() {
        lines.push(Vec::new());
    }

    // The backend for tests cannot fail: its error type has no values.
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    for (index, keys) in lines.into_iter().enumerate() {
        for key in keys {
            stepper.press(key)?;
        }

        // Drawn once for a line of keys, not for each key, as a fast typist would see it.
        let Ok(_) = terminal.draw(|frame| draw(stepper, frame, false));
        if index > 0 {
            writeln!(out, "{}", "-".repeat(usize::from(columns)))?;
        }

        let buffer = terminal.backend().buffer();
        // `chunks` does not take 0.
        for row in buffer.content().chunks(usize::from(columns.max(1))) {
            let line: String = row.iter().map(|cell| cell.symbol()).collect();
            writeln!(out, "{}", line.trim_end())?;
        }

        // What follows the key that ends the stepper is not pressed.
        if stepper.is_done() {
            break;
        }
    }
    Ok(())
}
