//! The rows of a shard as Apache Parquet: the fields of the JSON Lines, with numbers as numbers.
//!
//! A file has no rows until its footer is written, so it gets its name only when it is whole.
//! Instead of continuing it, a later run sees in the footer that it is done.

use super::part::{PartError, Plan};
use super::rows::{JsonRows, Sums};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_recordings::output_file::OutputFile;

/// The number of rows in a row group, which are in memory until it is full.
const GROUP_ROWS: usize = 1 << 17;
/// What a part is of, in the footer: the first line of the JSON form.
const HEADER: &str = "unwind-sim.sweep";
/// The last line of the JSON form.
const SUMMARY: &str = "unwind-sim.summary";

/// How a field becomes a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Text.
    Text,
    /// A number.
    Number,
    /// An address, which is hex in JSON.
    Address,
    /// A list of names, or the names of an object: joined by commas.
    Names,
}

/// The columns; a row has those of its type.
const COLUMNS: [(&str, Form); 34] = [
    ("type", Form::Text),
    ("file", Form::Text),
    ("file_bytes", Form::Text),
    ("build_id", Form::Text),
    ("package", Form::Text),
    ("function", Form::Text),
    ("start", Form::Address),
    ("end", Form::Address),
    ("length", Form::Number),
    ("code_section", Form::Text),
    ("entry", Form::Text),
    ("table", Form::Text),
    ("verdict", Form::Text),
    ("reason", Form::Text),
    ("doubts", Form::Names),
    ("rests_on", Form::Names),
    ("rows", Form::Number),
    ("rows_proven", Form::Number),
    ("below_sp", Form::Number),
    ("address", Form::Address),
    ("function_start", Form::Address),
    ("code", Form::Text),
    ("register", Form::Text),
    ("found", Form::Text),
    ("sp", Form::Text),
    ("section", Form::Text),
    ("offset", Form::Address),
    ("instruction", Form::Text),
    ("before", Form::Text),
    ("tables", Form::Names),
    ("problems", Form::Names),
    ("cause", Form::Text),
    ("error", Form::Text),
    ("flaw", Form::Text),
];

/// The values of a column that are not null, and which rows have one.
#[derive(Default)]
struct Column {
    texts: Vec<ByteArray>,
    numbers: Vec<i64>,
    present: Vec<i16>,
}

/// A Parquet file being written.
pub struct Parquet {
    writer: SerializedFileWriter<OutputFile>,
    columns: Vec<Column>,
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

/// The numbers of the part at `path`, if it is there, and is that of `plan`.
///
/// # Errors
/// If something else is there.
pub fn done(path: &Path, plan: &Plan<'_>) -> Result<Option<Sums>, PartError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    let reader = SerializedFileReader::new(file).map_err(|_| PartError::Else)?;
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let value = |key: &str| {
        let pair = pairs?.iter().find(|pair| pair.key == key)?;
        pair.value.as_deref()
    };
    let header = value(HEADER).ok_or(PartError::Else)?;
    if header.as_bytes() != plan.header() {
        return Err(PartError::Another);
    }
    let sums = value(SUMMARY).and_then(|line| Sums::read(line.as_bytes()));
    sums.ok_or(PartError::Else).map(Some)
}

impl Parquet {
    /// Begins the part of `plan` at `path`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: &Path, plan: &Plan<'_>) -> io::Result<Parquet> {
        let fields = COLUMNS.map(|(name, form)| match form {
            Form::Text | Form::Names => format!("optional binary {name} (UTF8);"),
            Form::Number => format!("optional int64 {name};"),
            Form::Address => format!("optional int64 {name} (INTEGER(64,false));"),
        });
        let schema = format!("message rows {{ {} }}", fields.concat());
        let schema = Arc::new(parse_message_type(&schema).map_err(failed)?);
        let header = String::from_utf8_lossy(&plan.header()).into_owned();
        let properties = WriterProperties::builder()
            .set_created_by(format!("unwind-sim version {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![KeyValue::new(HEADER.to_owned(), header)]))
            .build();
        let out = OutputFile::create(path)?;
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties));
        Ok(Parquet {
            writer: writer.map_err(failed)?,
            columns: COLUMNS.map(|_| Column::default()).into(),
        })
    }

    /// Adds the rows of the next file.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, rows: &JsonRows) -> io::Result<()> {
        for line in rows.text().split(|&byte| byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            let row: Map<String, Value> = serde_json::from_slice(line)?;
            for (column, (name, form)) in self.columns.iter_mut().zip(COLUMNS) {
                column.push(row.get(name), form);
            }
            if self.columns[0].present.len() >= GROUP_ROWS {
                self.write_group()?;
            }
        }
        Ok(())
    }

    fn write_group(&mut self) -> io::Result<()> {
        if self.columns[0].present.is_empty() {
            return Ok(());
        }

        let mut group = self.writer.next_row_group().map_err(failed)?;
        for (column, (_, form)) in self.columns.iter_mut().zip(COLUMNS) {
            // The format's columns come in the order of the schema, which is that of `COLUMNS`.
            let Some(mut out) = group.next_column().map_err(failed)? else {
                break;
            };

            // The memory of a column is free as soon as the column is written.
            let column = std::mem::take(column);
            let (texts, numbers) = (&column.texts, &column.numbers);
            let present = Some(&column.present[..]);

            let written = match form {
                // Addresses are 64-bit numbers without a sign, which the format stores in the same
                // type.
                Form::Number | Form::Address => {
                    let out = out.typed::<Int64Type>();
                    out.write_batch(numbers, present, None)
                }
                Form::Text | Form::Names => {
                    let out = out.typed::<ByteArrayType>();
                    out.write_batch(texts, present, None)
                }
            };

            // Each column ends before the next begins: the file is written from front to back.
            written.map_err(failed)?;
            out.close().map_err(failed)?;
        }

        group.close().map_err(failed)?;
        Ok(())
    }

    /// Writes the footer, and gives the file its name.
    ///
    /// # Errors
    /// If that fails.
    pub fn finish(mut self, sums: &Sums) -> io::Result<()> {
        self.write_group()?;
        let summary = String::from_utf8_lossy(&sums.line()).into_owned();
        let summary = KeyValue::new(SUMMARY.to_owned(), summary);
        self.writer.append_key_value_metadata(summary);
        self.writer.into_inner().map_err(failed)?.finish()
    }
}

impl Column {
    fn push(&mut self, value: Option<&Value>, form: Form) {
        let added = match (form, value) {
            (_, None | Some(Value::Null)) => false,
            (Form::Number, Some(value)) => self.add(value.as_u64()),
            (Form::Address, Some(value)) => {
                let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
                self.add(digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()))
            }
            (Form::Text, Some(value)) => value.as_str().is_some_and(|text| {
                self.texts.push(text.into());
                true
            }),
            (Form::Names, Some(value)) => {
                let names: Vec<&str> = match value {
                    Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                    Value::Object(names) => names.keys().map(String::as_str).collect(),
                    _ => Vec::new(),
                };
                self.texts.push(names.join(",").as_str().into());
                true
            }
        };
        self.present.push(added.into());
    }

    fn add(&mut self, number: Option<u64>) -> bool {
        self.numbers.extend(number.map(u64::cast_signed));
        number.is_some()
    }
}

#[cfg(test)]
mod tests;
