//! Tests of rotation, of deletion of rotated files, and of files that other programs move or truncate.

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("kube-fanout-audit-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

impl LogFile {
    /// Makes the next write check for a moved file, as if a second had passed.
    fn force_move_check(&mut self) {
        self.move_checked_at -= MOVE_CHECK_INTERVAL;
    }
}

#[test]
fn a_file_is_rotated_before_it_grows_too_long() {
    let folder = folder("size");
    let path = folder.join("audit.log");
    let retention = LogRetention {
        len_max: 10,
        ..LogRetention::default()
    };
    let mut file = LogFile::open(&path, retention).unwrap();
    for line in [
        "aaaa\n",
        "bbbb\n",
        "cccc\n",
        "longer than the limit\n",
        "dddd\n",
    ] {
        file.write_line(line.as_bytes()).unwrap();
    }
    let mut names = names(&folder);
    assert_eq!(names.pop().as_deref(), Some("audit.log"));
    let backups: Vec<String> = names.iter().map(|name| text(&folder.join(name))).collect();
    assert_eq!(
        backups,
        ["aaaa\nbbbb\n", "cccc\n", "longer than the limit\n"]
    );
    assert_eq!(text(&path), "dddd\n");
    for name in &names {
        let time = name
            .strip_prefix("audit-")
            .unwrap()
            .strip_suffix(".log")
            .unwrap();
        assert_eq!(time.len(), "2026-11-22T09-08-07.000".len(), "{name}");
    }
    let mode = fs::metadata(&path).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o600, "only the gateway's user may read events");
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn backups_that_are_too_many_or_too_old_are_removed_and_nothing_else() {
    let folder = folder("backups");
    fs::create_dir_all(&folder).unwrap();
    let now = Timestamp::now();
    let ago = |days: i64| {
        let at = now
            .checked_sub(jiff::SignedDuration::from_hours(24 * days))
            .unwrap();
        format!("audit-{}.log", at.strftime(BACKUP_TIME))
    };
    let others = [
        "audit-notes.log",
        "audit.log.1",
        "other-2000-01-01T00-00-00.000.log",
    ];
    let put = |name: &str| fs::write(folder.join(name), "x\n").unwrap();
    others.iter().for_each(|name| put(name));
    [1, 2, 3, 9].iter().for_each(|&days| put(&ago(days)));
    let retention = LogRetention {
        len_max: 1,
        backups_max: 3,
        age_max: Duration::from_secs(8 * 86_400),
    };
    // The backup of 9 days exceeds the age.
    let mut file = LogFile::open(&folder.join("audit.log"), retention).unwrap();
    let remaining = |folder: &Path| -> Vec<String> {
        let all = names(folder).into_iter();
        all.filter(|name| !others.contains(&name.as_str()))
            .collect()
    };
    assert_eq!(
        remaining(&folder),
        [ago(3), ago(2), ago(1), "audit.log".to_owned()]
    );
    file.write_line(b"a\n").unwrap();
    file.write_line(b"b\n").unwrap();
    let after = remaining(&folder);
    assert_eq!(after.len(), 4);
    assert_eq!(after[..2], [ago(2), ago(1)]);
    assert!(others.iter().all(|name| folder.join(name).exists()));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn old_backups_go_by_age_alone_if_their_number_is_not_limited() {
    let folder = folder("age");
    fs::create_dir_all(&folder).unwrap();
    for name in [
        "audit-2001-01-01T00-00-00.000.log",
        "audit-2999-01-01T00-00-00.000.log",
    ] {
        fs::write(folder.join(name), "x\n").unwrap();
    }
    let retention = LogRetention {
        age_max: Duration::from_secs(86_400),
        ..LogRetention::default()
    };
    LogFile::open(&folder.join("audit.log"), retention).unwrap();
    assert_eq!(
        names(&folder),
        ["audit-2999-01-01T00-00-00.000.log", "audit.log"]
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_that_was_moved_away_is_followed_by_a_new_one() {
    let folder = folder("moved");
    let path = folder.join("audit");
    let mut file = LogFile::open(&path, LogRetention::default()).unwrap();
    file.write_line(b"a\n").unwrap();
    fs::rename(&path, folder.join("audit.1")).unwrap();
    file.force_move_check();
    file.write_line(b"b\n").unwrap();
    fs::remove_file(&path).unwrap();
    file.force_move_check();
    file.write_line(b"c\n").unwrap();
    assert_eq!(text(&folder.join("audit.1")), "a\n");
    assert_eq!(text(&path), "c\n");
    // Writes fail while the folder is missing, and succeed once it exists again.
    fs::remove_dir_all(&folder).unwrap();
    file.force_move_check();
    assert!(file.write_line(b"d\n").is_err());
    assert!(file.write_line(b"d\n").is_err());
    fs::create_dir_all(&folder).unwrap();
    file.write_line(b"d\n").unwrap();
    assert_eq!(text(&path), "d\n");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_that_others_cut_is_not_rotated_early() {
    let folder = folder("cut");
    let path = folder.join("audit.log");
    let retention = LogRetention {
        len_max: 10,
        ..LogRetention::default()
    };
    let mut file = LogFile::open(&path, retention).unwrap();
    file.write_line(b"aaaaaaa\n").unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    file.force_move_check();
    file.write_line(b"bbbb\n").unwrap();
    assert_eq!(names(&folder), ["audit.log"]);
    assert_eq!(text(&path), "bbbb\n");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_line_that_was_not_ended_does_not_spoil_the_next() {
    let folder = folder("torn");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("audit.log");
    fs::write(&path, "{\"kind\":").unwrap();
    let mut file = LogFile::open(&path, LogRetention::default()).unwrap();
    file.write_line(b"{}\n").unwrap();
    drop(file);
    let mut file = LogFile::open(&path, LogRetention::default()).unwrap();
    file.write_line(b"{}\n").unwrap();
    assert_eq!(text(&path), "{\"kind\":\n{}\n{}\n");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_no_device_is_rotated() {
    let retention = LogRetention {
        len_max: 1,
        backups_max: 1,
        age_max: Duration::ZERO,
    };
    let mut full = LogFile::open(Path::new("/dev/full"), retention).unwrap();
    for _ in 0..2 {
        let error = full.write_line(b"aa\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let mut null = LogFile::open(Path::new("/dev/null"), retention).unwrap();
    for _ in 0..3 {
        null.force_move_check();
        null.write_line(b"aa\n").unwrap();
    }
    assert!(fs::metadata("/dev/null").unwrap().mode() & 0o777 != 0o600);
}
