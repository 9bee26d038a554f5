//! What is written is read back with every value of the JSON form.

use super::super::list::{List, ListedFile, Shard};
use super::super::run;
use super::*;
use parquet::record::{Field, Row};
use unwind_sim_tables::check::Options;
use unwind_sim_tables::proof::verdict::Assumptions;

fn plan(list: &List) -> Plan<'_> {
    Plan {
        list,
        shard: Shard::default(),
        assume: Assumptions::ALL,
        choice: Default::default(),
    }
}

fn text(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Long(number) => number.to_string(),
        Field::ULong(number) => format!("{number:#x}"),
        field => panic!("{field}"),
    }
}

/// The fields of a JSON row as the columns hold them.
fn fields(row: &Value) -> Vec<(String, String)> {
    let field = |(name, form): (&str, Form)| {
        let value = row.get(name)?;
        let text = match (form, value) {
            (Form::Names, Value::Array(names)) => {
                let names: Vec<_> = names.iter().map(|n| n.as_str().expect("text")).collect();
                names.join(",")
            }
            (Form::Names, Value::Object(names)) => {
                let names: Vec<_> = names.keys().cloned().collect();
                names.join(",")
            }
            (_, Value::String(text)) => text.clone(),
            (_, value) => value.to_string(),
        };
        Some((name.to_owned(), text))
    };
    COLUMNS.into_iter().filter_map(field).collect()
}

#[test]
fn the_columns_hold_what_the_lines_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("part.parquet");

    // A file with rows, and one that cannot be read.
    let elf = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/sframe/t_2.46");
    let list = List::read(format!("{elf}\tpackage\nnone\n").as_bytes()).expect("a list");
    let plan = plan(&list);

    assert_eq!(done(&path, &plan).expect("nothing is there"), None);

    let files: Vec<&ListedFile> = list.entries().iter().collect();
    let mut file = Parquet::create(&path, &plan).expect("writable");
    // The file gets its name when it is whole.
    assert!(!path.exists());
    let (mut sums, mut lines) = (Sums::default(), Vec::new());

    // The same run gives both forms, so any difference is one of writing.
    let added = run::run(&files, &Options::default(), |rows: JsonRows| {
        sums.add(rows.sums());
        lines.extend_from_slice(rows.text());
        file.add(&rows)
    });
    added.expect("written");
    file.finish(&sums).expect("written");
    assert_eq!(done(&path, &plan).expect("it is done"), Some(sums));

    let reader = SerializedFileReader::new(File::open(&path).expect("it is there"));
    let rows = reader.expect("a Parquet file");
    let rows = rows.get_row_iter(None).expect("rows");
    let row = |row: Result<Row, ParquetError>| {
        let row = row.expect("a row");
        let fields = row.get_column_iter();

        // A value that a line does not have is null in a column.
        let fields = fields.filter(|(_, field)| **field != Field::Null);
        fields
            .map(|(name, field)| (name.clone(), text(field)))
            .collect()
    };
    let found: Vec<Vec<(String, String)>> = rows.map(row).collect();
    let lines = serde_json::Deserializer::from_slice(&lines).into_iter::<Value>();
    let wanted: Vec<_> = lines.map(|line| fields(&line.expect("JSON"))).collect();
    assert_eq!(found, wanted);
    assert!(found.len() > 10, "{}", found.len());

    // Another sweep, and something else.
    let other = List::read(&b"a\n"[..]).expect("a list");
    let other = done(&path, &self::plan(&other));
    assert!(matches!(other, Err(PartError::Another)));
    for bytes in [&b"something"[..], b"PAR1PAR1", b"PAR1\0\0\0\xffPAR1"] {
        std::fs::write(&path, bytes).expect("writable");
        assert!(matches!(done(&path, &plan), Err(PartError::Else)));
    }
}
