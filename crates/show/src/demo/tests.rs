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

/// The two listings are of two processes. Each has its own addresses, those that were mailed.
#[test]
fn each_listing_has_its_own_user_addresses() {
    let demo = ALL.iter().find(|demo| demo.name == "seed-004").unwrap();
    let text = demo.show().unwrap();
    let (first, second) = text.split_once("--regs fake:v5.2").unwrap();

    // The kernel's frames name the image of the case; all others are user space.
    let user = |listing: &str| -> Vec<String> {
        let lines = listing.lines().map(str::trim_start);
        let frames = lines.filter(|line| line.ends_with(')') && !line.ends_with("(seed-004)"));
        let addresses = frames.filter_map(|line| line.split_once(' '));
        let is_address = |word: &&str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
        addresses
            .map(|(word, _)| word)
            .filter(is_address)
            .map(str::to_owned)
            .collect()
    };

    // As in the mail; the last number is no address, but bytes of code that were read as one.
    let mailed = [
        "7efdf7f7d3e8",
        "5651468729c1",
        "5651467ee82a",
        "7efdf7eaf413",
        "5541f689495641d7",
    ];
    assert_eq!(user(first), mailed);

    let mailed = [
        "7f71e92d03e8",
        "55a22960d9c1",
        "55a22958982a",
        "7f71e9202413",
        "5541f689495641d7",
    ];
    assert_eq!(user(second), mailed);
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
