//! Aligned text.

use std::fmt::Write as _;
use unwind_sim_unwind::printable::{Printable, printable};

/// A table of text. Columns of numbers are right-aligned.
#[derive(Default)]
pub(super) struct Columns {
    rows: Vec<Vec<String>>,
}

/// A row of cells, each of any type that implements `Display`.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$($cell.to_string()),*] };
}
pub(super) use cells;

/// The maximum width of a column; wider cells overflow.
const WIDTH_MAX: usize = 60;

impl Columns {
    /// A table with these headings.
    pub(super) fn new(head: &[&str]) -> Columns {
        let head = head.iter().map(|s| (*s).to_owned()).collect();
        Columns { rows: vec![head] }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| printable(cell).into());
        self.rows.push(cells.collect());
    }

    /// Whether there are only headings.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// Adds the table to `out`, each line indented by two.
    pub(super) fn write(&self, out: &mut String) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(i));
            let lengths = cells.map(|cell| cell.chars().count());
            lengths.filter(|n| *n <= WIDTH_MAX).max().unwrap_or(0)
        };
        let is_number = |i: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(i));
            cells.all(|c| c.starts_with(|c: char| c.is_ascii_digit()))
        };
        let shapes: Vec<(usize, bool)> = (0..columns).map(|i| (width(i), is_number(i))).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, &(width, number)) in row.iter().zip(&shapes) {
                let _ = if number {
                    write!(line, "  {cell:>width$}")
                } else {
                    write!(line, "  {cell:<width$}")
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

/// `key        value`, indented by two.
pub(super) fn field(out: &mut String, key: &str, value: impl std::fmt::Display) {
    let (key, value) = (Printable::new(key), value.to_string());
    let _ = writeln!(out, "  {key:<13} {}", printable(&value));
}

/// A list of at most `most` items, with the number of the others.
pub(super) fn list<T: std::fmt::Display>(out: &mut String, items: &[T], most: usize) {
    for item in items.iter().take(most) {
        let _ = writeln!(out, "    {}", printable(&item.to_string()));
    }
    if items.len() > most {
        let _ = writeln!(out, "    and {} more", items.len() - most);
    }
}

/// The ratio with one decimal; `-` if `count` is 0.
pub(super) fn per(sum: u64, count: u64) -> String {
    if count == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", sum as f64 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_not_glued_to_its_value() {
        let mut out = String::new();
        field(&mut out, "key", 1);
        field(&mut out, "kernel-v3-validate", 2);
        assert_eq!(out, "  key           1\n  kernel-v3-validate 2\n");
    }
}
