//! Plays keys without a terminal, and prints the screens as text.

use super::screen::draw;
use super::{Key, KeyError, Stepper, parse_keys};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::collections::VecDeque;
use std::io::Write;
use unwind_sim_judge::input::InputError;

/// Why a script cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The recording cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The screen cannot be written.
    #[error(transparent)]
    Write(#[from] std::io::Error),
}

/// A script of which a part may have been played.
#[derive(Clone, Debug)]
pub struct Played {
    /// The keys that are left, line by line.
    lines: VecDeque<VecDeque<Key>>,
    is_first: bool,
}

impl Played {
    /// A script of which nothing was played.
    ///
    /// # Errors
    /// If a key does not exist.
    pub fn new(script: &str) -> Result<Played, KeyError> {
        let lines = parse_keys(script)?.into_iter().map(VecDeque::from);
        let mut lines: VecDeque<VecDeque<Key>> = lines.collect();
        if lines.is_empty() {
            lines.push_back(VecDeque::new());
        }
        Ok(Played {
            lines,
            is_first: true,
        })
    }

    /// Presses the keys that are left, and writes the screen of `columns` by `rows` after each line. A script
    /// without lines shows the first screen. Returns early, within a line, where the user wants to edit what
    /// is shown.
    ///
    /// # Errors
    /// If the recording cannot be read, or `out` fails.
    pub fn go_on(
        &mut self,
        stepper: &mut Stepper<'_>,
        (columns, rows): (u16, u16),
        out: &mut dyn Write,
    ) -> Result<(), ScriptError> {
        // The backend for tests cannot fail: its error type has no values.
        let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
        while let Some(keys) = self.lines.front_mut() {
            while let Some(key) = keys.pop_front() {
                stepper.press(key)?;
                if stepper.wants_edit() {
                    return Ok(());
                }
            }
            self.lines.pop_front();

            // Drawn once for a line of keys, not for each key, as a fast typist would see it.
            let Ok(_) = terminal.draw(|frame| draw(stepper, frame, false));
            if !self.is_first {
                writeln!(out, "{}", "-".repeat(usize::from(columns)))?;
            }
            self.is_first = false;

            let buffer = terminal.backend().buffer();
            // `chunks` does not take 0.
            for row in buffer.content().chunks(usize::from(columns.max(1))) {
                let line: String = row.iter().map(|cell| cell.symbol()).collect();
                writeln!(out, "{}", line.trim_end())?;
            }

            // What follows the key that ends the stepper is not pressed.
            if stepper.is_done() {
                self.lines.clear();
            }
        }
        Ok(())
    }
}
