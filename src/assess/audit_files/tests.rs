//! Files in every state: compressed, cut, in any order, full of rubbish.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::lines::LINE_LEN_MAX;
use super::*;

/// A list of pods at this second, as the audit log writes it.
fn list(id: &str, second: u32) -> String {
    format!(
        "{{\"auditID\":\"{id}\",\"stage\":\"ResponseComplete\",\"requestURI\":\"/api/v1/pods\",\"verb\":\"list\",\"user\":{{\"username\":\"a\"}},\
         \"objectRef\":{{\"resource\":\"pods\"}},\"requestReceivedTimestamp\":\"2026-11-29T08:42:{second:02}Z\",\"stageTimestamp\":\
         \"2026-11-29T08:42:{second:02}Z\"}}\n"
    )
}

fn file(name: &str, text: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kube-fanout-assess-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[track_caller]
fn check(paths: &[PathBuf], lists: u64, seconds: f64, notes: &[&str]) {
    let (usage, found) = read(paths, None).unwrap();
    let usage = usage.unwrap();
    let total: u64 = usage
        .rows
        .iter()
        .map(|(_, usage)| usage.list_requests)
        .sum();
    assert_eq!((total, usage.window_seconds), (lists, seconds));
    assert_eq!(found.len(), notes.len(), "{found:?}");
    for (note, words) in found.iter().zip(notes) {
        assert!(note.contains(words), "{note}");
    }
}

#[test]
fn files_are_read_in_the_order_of_their_times_and_may_be_compressed() {
    let late = file("order-late", (list("c", 30) + &list("d", 40)).as_bytes());
    // Two members, as `cat` of two files gives.
    let members = [gzip(&list("a", 10)), gzip(&list("b", 20))].concat();
    let early = file("order-early.gz", &members);
    check(&[late, early], 4, 30.0, &[]);
}

#[test]
fn bad_lines_are_counted_and_the_first_is_named() {
    let long = "x".repeat(10 * LINE_LEN_MAX);
    let mut text = format!("{}\n\n{long}\n{{\n", list("a", 10).trim_end()).into_bytes();
    text.extend(b"\x00\xff\xfe\n");
    text.extend(list("b", 20).as_bytes());
    let cut = &list("c", 30)[..100];
    text.extend(cut.as_bytes());
    let note = "4 lines were left out, first line 3: longer than 1 MiB";
    check(&[file("bad-lines", &text)], 2, 10.0, &[note]);
}

#[test]
fn lines_of_clouds_count_and_what_else_they_keep_is_a_bad_line() {
    let dated = format!("2026-11-29T08:42:10Z {}", list("a", 10));
    let other = "{\"properties\":{\"log\":\"started\"}}\n";
    let text = dated + other + &list("b", 20);
    let note = "1 line was left out: line 2: not an audit event";
    check(&[file("clouds", text.as_bytes())], 2, 10.0, &[note]);
}

#[test]
fn what_comes_before_the_end_of_a_cut_file_counts() {
    // Many lines that differ, so that whole blocks lie before the cut.
    let text: String = (0..20_000)
        .map(|number| list(&number.to_string(), number % 60))
        .collect();
    let whole = gzip(&text);
    let path = file("cut.gz", &whole[..whole.len() / 2]);
    let (usage, notes) = read(&[path], None).unwrap();
    let lists = usage.unwrap().rows[0].1.list_requests;
    assert!((1_000..20_000).contains(&lists), "{lists}");
    assert!(notes[0].contains("cannot be read beyond line"), "{notes:?}");
}

#[test]
fn a_file_without_entries_is_named_and_a_missing_one_is_an_error() {
    let (usage, notes) = read(&[file("empty", b""), file("other", b"hello\n")], None).unwrap();
    assert!(usage.is_none());
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].contains("no event of an audit log"), "{notes:?}");
    let missing = read(&["/nowhere/audit.log".into()], None).err().unwrap();
    assert_eq!(missing.to_string(), "cannot read /nowhere/audit.log");
}
