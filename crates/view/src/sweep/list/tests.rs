//! Lists in every form, and their shards.

use super::*;

fn paths(text: &[u8]) -> Vec<(String, Option<String>)> {
    let list = List::read(text).expect("a list");
    let entries = list.entries().iter();
    let pair = |e: &ListedFile| {
        let path = String::from_utf8_lossy(e.bytes()).into_owned();
        (path, e.package().map(str::to_owned))
    };
    entries.map(pair).collect()
}

fn pair(path: &str, package: &str) -> (String, Option<String>) {
    let package = (!package.is_empty()).then(|| package.to_owned());
    (path.to_owned(), package)
}

#[test]
fn an_entry_ends_with_its_line_or_with_a_nul_byte() {
    assert_eq!(paths(b""), []);
    assert_eq!(paths(b"\n\n"), []);
    assert_eq!(paths(b"a\nb c"), [pair("a", ""), pair("b c", "")]);
    assert_eq!(paths(b"a\nb\0c\0"), [pair("a\nb", ""), pair("c", "")]);
    assert_eq!(paths(b"a\"\\'\r\n"), [pair("a\"\\'\r", "")]);
}

#[test]
fn the_package_is_behind_the_last_tab() {
    assert_eq!(
        paths(b"a\tp\nb\tc\tp\n"),
        [pair("a", "p"), pair("b\tc", "p")]
    );
    assert_eq!(paths(b"a\tb\t\n"), [pair("a\tb", "")]);
}

#[test]
fn a_path_counts_once() {
    let list = List::read(&b"a\nb\na\tp\n\xff\n\xff\n"[..]).expect("a list");
    assert_eq!((list.entries().len(), list.repeated()), (3, 2));
    // The bytes differ, although both are shown the same.
    let list = List::read(&b"\xff\n\xfe\n"[..]).expect("a list");
    assert_eq!(list.entries().len(), 2);
}

#[test]
fn what_is_not_a_path_is_refused_with_its_number() {
    let refused = |text: &[u8]| List::read(text).expect_err("no list").to_string();
    assert!(refused(b"a\n\tp\n").starts_with("entry 2: there is no path"));
    assert!(refused(b"a\n\nb\t\xff\n").starts_with("entry 3: the package is not UTF-8"));
    assert!(refused(&[b'a'; PATH_BYTES_MAX + 1]).starts_with("entry 1: the path is too long"));
    assert_eq!(paths(&[b'a'; PATH_BYTES_MAX]).len(), 1);
}

#[test]
fn every_file_is_in_one_shard() {
    let text: String = (0..10).map(|n| format!("{n}\n")).collect();
    let list = List::read(text.as_bytes()).expect("a list");

    // More shards than files, too: then some are empty.
    for count in [1, 2, 3, 10, 11, usize::MAX] {
        let shards = (1..=count.min(20)).map(|number| list.shard(Shard { number, count }));
        let mut all: Vec<_> = shards.flatten().map(ListedFile::bytes).collect();
        all.sort_unstable();
        assert_eq!(all.len(), 10, "{count}");
        // No file is in two shards.
        all.dedup();
        assert_eq!(all.len(), 10, "{count}");
    }

    // The files of a shard are spread over the list, not a run of it.
    let mine = list.shard(Shard {
        number: 2,
        count: 3,
    });
    let mine: Vec<_> = mine.into_iter().map(ListedFile::bytes).collect();
    assert_eq!(mine, [b"1", b"4", b"7"]);

    let mine = list.shard(Shard {
        number: 1,
        count: 3,
    });
    let mine: Vec<_> = mine.into_iter().map(ListedFile::bytes).collect();
    assert_eq!(mine, [b"0", b"5", b"6"]);

    let shard = |text: &str| text.parse::<Shard>().ok();
    assert_eq!(
        shard("2/3"),
        Some(Shard {
            number: 2,
            count: 3
        })
    );

    for wrong in [
        "",
        "1",
        "0/1",
        "2/1",
        "1/0",
        "-1/2",
        "1/2/3",
        "1/99999999999999999999",
    ] {
        assert_eq!(shard(wrong), None, "{wrong}");
    }
}

#[test]
fn lists_that_differ_have_another_hash() {
    let hash = |text: &[u8]| List::read(text).expect("a list").hash();
    let lists: [&[u8]; 7] = [
        b"", b"a\n", b"b\n", b"a\nb\n", b"b\na\n", b"a\tb\n", b"ab\n",
    ];
    let mut hashes = lists.map(hash).to_vec();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), lists.len());
    assert_eq!(hash(b"a\nb\n"), hash(b"a\0b\0"));
}
