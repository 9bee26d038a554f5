//! Files, pipes and folders as inputs.

use super::*;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::io::Write;

fn bytes(file: &InputFile) -> Vec<u8> {
    (*file.bytes().expect("it can be read")).as_ref().to_vec()
}

/// A pipe with these bytes, and the name that a shell would give it.
#[cfg(target_os = "linux")]
fn piped(bytes: &[u8]) -> (io::PipeReader, PathBuf) {
    use std::os::fd::AsRawFd;
    let (reader, mut writer) = io::pipe().expect("a pipe");
    writer.write_all(bytes).expect("it fits into a pipe");
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    (reader, path.into())
}

#[test]
fn a_file_is_read_as_it_was_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    std::fs::write(&path, b"PERFILE2 first").expect("written");
    let file = InputFile::open(&path).expect("it is there");
    // Another file takes its place: what was opened stays.
    let other = folder.path().join("other");
    std::fs::write(&other, b"another, and longer").expect("written");
    std::fs::rename(&other, &path).expect("renamed");

    assert_eq!(file.kind(), FileKind::PerfData);
    assert_eq!(bytes(&file), b"PERFILE2 first");
    assert_eq!(bytes(&file.clone()), b"PERFILE2 first", "a second time");
    assert_eq!((file.path(), file.modified().is_some()), (&*path, true));

    let text = InputFile::open(&path).expect("it is there");
    assert_eq!(text.text(19).expect("a text"), "another, and longer");
    let error = text.text(18).expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn what_is_not_a_file_has_a_kind_and_no_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).expect("a FIFO");
    for (path, kind, what) in [
        (&*fifo, FileKind::Special, "a FIFO"),
        (Path::new("/dev/zero"), FileKind::Special, "a device"),
        (folder.path(), FileKind::Folder, "a folder"),
    ] {
        let file = InputFile::open(path).expect("it has a kind");
        assert_eq!(file.kind(), kind);
        let error = file.bytes().map(drop).expect_err("no bytes");
        assert_eq!(error.to_string(), format!("this is {what}, not a file"));
    }
    let missing = InputFile::open(&folder.path().join("missing"));
    assert_eq!(missing.expect_err("none").kind(), io::ErrorKind::NotFound);

    let empty = folder.path().join("empty");
    std::fs::write(&empty, b"").expect("written");
    let empty = InputFile::open(&empty).expect("it is there");
    assert_eq!((empty.kind(), bytes(&empty)), (FileKind::Empty, Vec::new()));
}

#[test]
fn one_of_another_kind_is_named_for_what_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("text");
    std::fs::write(&path, b"words").expect("written");
    let expect = |kinds| InputFile::expect(&path, "a perf.data", kinds);
    assert!(expect(&[FileKind::Elf, FileKind::Text]).is_ok());
    let told = expect(&[FileKind::PerfData]).expect_err("a text");
    let told = told.to_string();
    assert!(
        told.ends_with("text is a text file, not a perf.data"),
        "{told}"
    );
}

/// A pipe can be read only once, and is read only if it is wanted.
#[test]
#[cfg(target_os = "linux")]
fn a_pipe_is_read_once_and_as_often_as_asked_for() {
    let long = [&b"PERFILE2"[..], &[7; 5000]].concat();
    let (_reader, path) = piped(&long);
    let file = InputFile::open(&path).expect("a pipe");
    assert_eq!((file.kind(), file.modified()), (FileKind::PerfData, None));
    assert!(bytes(&file) == long && bytes(&file) == long);

    for (text, kind) in [
        (&b"#! claim: A claim.\n_start:\n"[..], FileKind::Case),
        (b"; a comment\n#! claim: A claim.\n", FileKind::Case),
        (b"#!/bin/sh\n", FileKind::Text),
        (b"", FileKind::Empty),
    ] {
        let (_reader, path) = piped(text);
        let file = InputFile::open(&path).expect("a pipe");
        assert_eq!((file.kind(), bytes(&file)), (kind, text.to_vec()));
    }
}

/// What cannot be a recording is refused by its first bytes: the rest of an endless pipe is left in it.
#[test]
#[cfg(target_os = "linux")]
fn of_a_pipe_that_is_refused_only_the_first_bytes_are_taken() {
    let (mut reader, path) = piped(&[b' '; 4000]);
    let file = InputFile::expect(&path, "a trace", &[FileKind::Trace]);
    assert!(file.is_err());
    let mut left = vec![0; 4000];
    let left = reader.read(&mut left).expect("it is not empty");
    assert_eq!(left as u64, 4000 - HEAD_BYTES);
}

#[test]
#[cfg(target_os = "linux")]
fn what_comes_through_a_pipe_is_bounded() {
    for (max, is_read) in [(1000, true), (999, false)] {
        let (_reader, path) = piped(&[b'x'; 1000]);
        let file = InputFile::open(&path).expect("a pipe");
        let read = file.read(max);
        assert_eq!(read.is_ok(), is_read, "{max}");
        let Err(error) = read else { continue };
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 999 bytes"), "{error}");
        // Asking again does not read on.
        let again = file.bytes().map(drop).expect_err("the same");
        assert_eq!(again.to_string(), error.to_string());
    }
}

/// As in `/proc`, where files have no length.
#[test]
#[cfg(target_os = "linux")]
fn a_file_without_a_length_is_read_to_its_end() {
    let path = Path::new("/proc/filesystems");
    let whole = std::fs::read(path).expect("Linux has it");
    let file = InputFile::open(path).expect("Linux has it");
    assert_eq!(file.kind(), FileKind::Text);
    assert!(bytes(&file) == whole);
}

#[test]
fn bytes_in_memory_are_an_input() {
    let path = Path::new("some/case.s");
    let file = InputFile::held(path, Arc::new(b"#! claim: A claim.\n"));
    assert_eq!(file.kind(), FileKind::Case);
    assert_eq!(file.text(100).expect("a text"), "#! claim: A claim.\n");
}
