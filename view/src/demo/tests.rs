//! Each demo can be shown, and says what the corpus says of its source.

use super::*;

#[test]
fn names_are_unique_and_recordings_sound() {
    let mut names: Vec<&str> = ALL.iter().map(|demo| demo.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL.len());
    for demo in &ALL {
        let text = demo.show().unwrap_or_else(|e| panic!("{}: {e}", demo.name));
        assert!(
            text.contains("What to try:") || demo.name == "seed-004",
            "{}",
            demo.name
        );
        let long = text.lines().find(|line| line.chars().count() > 140);
        assert_eq!(long, None, "{}", demo.name);
        assert_eq!(demo.input().is_ok(), demo.is_trace(), "{}", demo.name);
    }
}

#[test]
fn the_sources_exist() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for demo in &ALL {
        assert!(
            corpus.join(demo.source).is_file(),
            "{}: {}",
            demo.name,
            demo.source
        );
    }
}
