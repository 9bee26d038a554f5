//! The rows of a table as equations: one line for each row.

use super::names::{Names, address};
use crate::json::{Line, TableRowLine};
use hashbrown::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use unwind_sim_tables::dump::Filter;
use unwind_sim_tables::file::File;
use unwind_sim_tables::table::{Row, Table};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Rule;

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `0x401004 main+0x4 .eh_frame+0x3c call cfa=rsp+16 ra=*(cfa-8)`.
    Text,
    /// JSON Lines.
    Json,
}

/// The maximum number of rules whose text is remembered. A table has a few thousand.
const TEXTS_MAX: usize = 1 << 16;
/// The text is written when it has this many bytes.
const FULL: usize = 1 << 16;

/// Writes the rows of `table`, a table of `file`, and returns how many there are.
///
/// # Errors
/// Those of `out`.
pub fn write(
    file: &File,
    table: &Table,
    filter: &Filter,
    form: Form,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let mut names = Names::new(file);

    // Tables of large files have millions of rows, but few different rules.
    let mut texts: HashMap<Rule, String> = HashMap::new();
    let mut rows = 0;
    let mut text = String::with_capacity(2 * FULL);

    let functions = table.functions().iter();
    for function in functions.filter(|f| filter.shows(&f.range)) {
        for row in table.rows(function) {
            // A piece of an ORC table, which stands for a function, has the rows of many.
            if table.kind() == TableKind::Orc && !filter.shows(&(row.start..row.end)) {
                continue;
            }
            rows += 1;
            if form == Form::Json {
                let line = TableRowLine::new(file, table, &row, names.function(row.start));
                Line::TableRow(Box::new(line)).write(out)?;
                continue;
            }
            // Equal rules are frequent, so their texts are kept.
            line(file, table, &row, &mut names, &mut texts, &mut text);

            // The text is written in pieces: neither row by row nor all at once.
            if text.len() >= FULL {
                out.write_all(text.as_bytes())?;
                text.clear();
            }
        }
    }

    out.write_all(text.as_bytes())?;
    Ok(rows)
}

fn line(
    file: &File,
    table: &Table,
    row: &Row<'_>,
    names: &mut Names<'_>,
    texts: &mut HashMap<Rule, String>,
    out: &mut String,
) {
    address(file, row.start, out);
    out.push(' ');
    names.place(row.start, out);
    let section = table.kind().section().map_or("", |s| s.as_str());
    let _ = write!(out, " {section}+{:#x} ", row.offset);
    if texts.len() >= TEXTS_MAX {
        texts.clear();
    }
    let rule = texts
        .entry(*row.rule)
        .or_insert_with(|| row.rule.to_string());
    out.push_str(rule);
    out.push('\n');
}
