//! Tests of files that other programs move or truncate, and that cannot be written.

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("kube-fanout-audit-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
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
fn only_the_gateways_user_may_read_events() {
    let folder = folder("mode");
    let path = folder.join("audit.log");
    LogFile::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_that_was_moved_away_is_followed_by_a_new_one() {
    let folder = folder("moved");
    let path = folder.join("audit");
    let mut file = LogFile::open(&path).unwrap();
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
fn a_file_that_others_cut_goes_on_at_its_beginning() {
    let folder = folder("cut");
    let path = folder.join("audit.log");
    let mut file = LogFile::open(&path).unwrap();
    file.write_line(b"aaaaaaa\n").unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    file.force_move_check();
    file.write_line(b"bbbb\n").unwrap();
    assert_eq!(text(&path), "bbbb\n");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_line_that_was_not_ended_does_not_spoil_the_next() {
    let folder = folder("torn");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("audit.log");
    fs::write(&path, "{\"kind\":").unwrap();
    let mut file = LogFile::open(&path).unwrap();
    file.write_line(b"{}\n").unwrap();
    drop(file);
    let mut file = LogFile::open(&path).unwrap();
    file.write_line(b"{}\n").unwrap();
    assert_eq!(text(&path), "{\"kind\":\n{}\n{}\n");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_a_device_keeps_its_mode() {
    let mut full = LogFile::open(Path::new("/dev/full")).unwrap();
    for _ in 0..2 {
        let error = full.write_line(b"aa\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let mut null = LogFile::open(Path::new("/dev/null")).unwrap();
    for _ in 0..3 {
        null.force_move_check();
        null.write_line(b"aa\n").unwrap();
    }
    assert!(fs::metadata("/dev/null").unwrap().mode() & 0o777 != 0o600);
}
