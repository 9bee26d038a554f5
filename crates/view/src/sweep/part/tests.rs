//! Parts that were interrupted anywhere, or damaged.

use super::super::run;
use super::*;
use unwind_sim_tables::check::Options;

/// Files of every outcome; the repository's own have few functions.
fn list() -> List {
    let top = env!("CARGO_MANIFEST_DIR");
    let text = format!(
        "{top}/corpus/sframe/t_2.46\tone\nnone \"quoted\"\\\n{top}/corpus/sframe/t_2.40\n{top}\n"
    );
    let mut text = text.into_bytes();
    text.extend(b"not \xff UTF-8\n");
    List::read(&text[..]).expect("a list")
}

fn plan(list: &List) -> Plan<'_> {
    Plan {
        list,
        shard: Shard::default(),
        assume: Assumptions::ALL,
        choice: Default::default(),
    }
}

/// Writes or continues the part at `path`; stops after `most` files.
fn sweep(path: &Path, list: &List, most: usize) -> Result<ResumePoint, PartError> {
    let plan = plan(list);
    let mut part = PartFile::open(path, &plan)?;
    let kept = *part.kept();
    if kept.is_whole {
        return Ok(kept);
    }
    let mut all = kept.sums;
    let files = list.shard(plan.shard);
    let end = files.len().min(kept.files.saturating_add(most));
    run::run(
        &files[kept.files..end],
        &Options::default(),
        |rows: JsonRows| {
            all.add(rows.sums());
            part.add(&rows)
        },
    )?;
    if end == files.len() {
        part.finish(&all)?;
    }
    Ok(kept)
}

fn whole(folder: &Path, list: &List) -> Vec<u8> {
    let path = folder.join("whole");
    let kept = sweep(&path, list, usize::MAX).expect("a part");
    assert_eq!(kept, ResumePoint::default());
    fs::read(path).expect("the part")
}

#[test]
fn a_part_cut_anywhere_is_continued_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = list();

    // The part as it is if nothing interrupts the sweep.
    let whole = whole(folder.path(), &list);
    let lines = whole.iter().filter(|&&byte| byte == b'\n').count();
    assert!(lines > 20, "{lines}");
    let path = folder.path().join("part");
    let mut files = Vec::new();
    // Every end of a line, its neighbours, and some places within lines.
    let ends = (0..=whole.len()).filter(|&at| {
        let near = at.saturating_sub(2)..(at + 1).min(whole.len());
        at % 97 == 0 || whole[near].contains(&b'\n')
    });

    // Continued after each cut, the part must be the same as if it had not been interrupted.
    for end in ends {
        fs::write(&path, &whole[..end]).expect("writable");
        let kept = sweep(&path, &list, usize::MAX).expect("continued");
        assert!(kept.bytes <= end as u64);
        assert_eq!(kept.bytes + kept.cut, end as u64);
        files.push(kept.files);
        assert!(fs::read(&path).expect("the part") == whole, "cut at {end}");
    }

    // The later the cut, the more files are kept, and each number of files occurs.
    assert!(files.is_sorted());
    files.dedup();

    assert_eq!(files, [0, 1, 2, 3, 4, 5]);
    // File by file.
    fs::remove_file(&path).expect("ours");
    for done in 0..5 {
        assert_eq!(sweep(&path, &list, 1).expect("continued").files, done);
    }
    assert!(fs::read(&path).expect("the part") == whole);

    let kept = sweep(&path, &list, 1).expect("whole");
    assert!(kept.is_whole && kept.sums.files == 5 && kept.sums.unreadable == 3);
}

#[test]
fn what_is_damaged_is_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = list();
    let whole = whole(folder.path(), &list);
    let path = folder.path().join("part");
    let first = whole.iter().position(|&b| b == b'\n').expect("lines") + 1;

    let line = |number: usize| {
        let mut lines = whole.split_inclusive(|&b| b == b'\n').skip(number);
        lines.next().expect("a line").to_vec()
    };

    // Damage in the middle, after some whole files.
    let end = whole.len();
    let middle = first + (end - first) / 2;

    let mut zeros = whole.clone();
    zeros[middle..].fill(0);
    let mut flipped = whole.clone();
    flipped[middle] = 0xff;

    // Lines that are well-formed and in the wrong place.
    let twice = [&whole[..], &whole[first..]].concat();
    let repeated = [&whole[..first], &line(1), &whole[first..]].concat();
    let short = [&whole[..first], &whole[first + line(1).len()..]].concat();

    // What is not a line of a part at all, or would be costly to parse.
    let long = [&whole[..], &[b'x'; 1 << 20]].concat();
    let deep = [&whole[..first], "[".repeat(100_000).as_bytes(), b"\n"].concat();
    let null = [&whole[..first], b"null\n{}\n{\"type\":7}\n"].concat();

    // Sums of more files than were checked: nothing before them shows the damage.
    let sums = String::from_utf8(whole.clone()).expect("text");
    let sums = sums.replace(
        "\"files\":5,\"unreadable\":3",
        "\"files\":6,\"unreadable\":3",
    );
    assert_ne!(sums.as_bytes(), whole);

    let damaged: [&[u8]; 9] = [
        &zeros,
        &flipped,
        &twice,
        &repeated,
        &short,
        &long,
        &deep,
        &null,
        sums.as_bytes(),
    ];

    for (number, bytes) in damaged.into_iter().enumerate() {
        fs::write(&path, bytes).expect("writable");
        sweep(&path, &list, usize::MAX).expect("continued");
        assert!(
            fs::read(&path).expect("the part") == whole,
            "damage {number}"
        );
    }
}

#[test]
fn another_file_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = list();
    let path = folder.path().join("part");
    let whole = whole(folder.path(), &list);

    // Whatever the file is, it must be as it was.
    let refused = |bytes: &[u8], list: &List| {
        fs::write(&path, bytes).expect("writable");
        let error = sweep(&path, list, usize::MAX).expect_err("refused");
        assert!(fs::read(&path).expect("the file") == bytes);
        error
    };

    for bytes in [
        &b"something\n"[..],
        b"\0",
        b"{}\n",
        b"{\"type\":\"chain\"}\n",
        b"\n",
    ] {
        assert!(matches!(refused(bytes, &list), PartError::Else));
    }

    let other = List::read(&b"a\n"[..]).expect("a list");
    assert!(matches!(refused(&whole, &other), PartError::Another));

    assert!(matches!(
        PartFile::open(folder.path(), &plan(&list)),
        Err(PartError::Io(_))
    ));

    // A second writer would mix its lines with those of the first.
    fs::remove_file(&path).expect("ours");
    let held = PartFile::open(&path, &plan(&list)).expect("a part");
    assert!(matches!(
        PartFile::open(&path, &plan(&list)),
        Err(PartError::Busy)
    ));

    drop(held);
}
