//! The lines written are those of the serializer, whatever the unwinder.

use super::*;
use crate::demo;
use crate::json::chain;
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::{compare::GroupBy, engine::Setting, spec};
use unwind_sim_recordings::view::Filter;

#[test]
fn lines_are_those_of_the_serializer() {
    let names = [
        "dwarf",
        "sframe",
        "orc",
        "fp",
        "guess",
        "lbr",
        "dwarf+fp",
        "sframe+fp",
    ];
    let engine = |name: &&str| spec::engine(name).expect("an unwinder");
    let run = Run {
        engines: names.iter().map(engine).collect(),
        variants: Vec::new(),
        setting: Setting::default(),
        against: Against::Truth,
        group_by: GroupBy::Cause,
    };
    // One writer for all: what it keeps must not serve another recording.
    let mut writer = ChainWriter::default();
    let (mut written, mut serialized) = (Vec::new(), Vec::new());
    let mut demos = 0;
    for demo in &demo::ALL {
        // One of them shows a file of another kind.
        let Ok(input) = demo.input() else {
            continue;
        };
        demos += 1;
        let done = run.for_each(&input, &Filter::default(), &mut |view, column, outcome| {
            let name = names[column];
            writer.write(&mut written, view, name, "hw", outcome)?;
            serde_json::to_writer(&mut serialized, &chain(view, name, "hw", outcome))?;
            serialized.push(b'\n');
            Ok(())
        });
        done.expect("it is read");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&written), text(&serialized), "{}", demo.name);
        assert!(!written.is_empty());
        written.clear();
        serialized.clear();
    }
    assert!(demos + 1 >= demo::ALL.len());
    assert!(!writer.texts.places.is_empty() && !writer.texts.rows.is_empty());
}

#[test]
fn numbers_are_written_as_elsewhere() {
    for value in [
        0,
        1,
        0xf,
        0x10,
        0xff,
        0x100,
        0x7fff_ffff_e7f0,
        1 << 63,
        u64::MAX,
    ] {
        let mut out = Vec::new();
        hex(value, &mut out);
        let wanted = format!("\"{}\"", unwind_sim_judge::hex::hex(value));
        assert_eq!(String::from_utf8_lossy(&out), wanted);
    }
}
