//! Tests of what a changed file changes, and of files that cannot be used.

use std::fs;

use super::*;
use crate::config;

const HEAD: &str = "apiVersion: kube-fanout.dev/v1alpha1\nkind: GatewayConfiguration\n\
    upstream: http://127.0.0.1:8001\nplainHttp: true\nauth: none\n";

/// A file, and what it was when the gateway started.
struct Stage {
    folder: PathBuf,
    file: ConfigurationFile,
}

impl Stage {
    fn new(flags: &str, settings: &str) -> Self {
        let name = format!(
            "kube-fanout-live-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("gateway.yaml");
        fs::write(&path, format!("{HEAD}{settings}")).unwrap();
        let line = format!("kube-fanout serve --config {} {flags}", path.display());
        let arguments: Vec<_> = line.split_whitespace().map(OsString::from).collect();
        let variable = |_: &str| None;
        let flags = config::read(arguments.clone(), variable).unwrap();
        let file = ConfigurationFile::new(&flags, arguments, variable).unwrap();
        Self { folder, file }
    }

    fn write(&self, settings: &str) {
        fs::write(self.file.path(), format!("{HEAD}{settings}")).unwrap();
    }

    /// Keys of the live settings that differ, and of the others.
    fn changed(&self) -> (Vec<&'static str>, Vec<String>) {
        let new = self.file.read().unwrap();
        let live = new.live.iter().map(|change| change.setting.key());
        (live.collect(), new.restart)
    }

    #[track_caller]
    fn refused(&self, words: &str) {
        let error = self.file.read().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.len() < 500 && !error.contains('\n'), "{error}");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn each_live_setting_changes_alone_and_once() {
    let mut stage = Stage::new("", "");
    assert_eq!(stage.changed(), (vec![], vec![]));
    for setting in LiveSetting::ALL {
        let value = match setting {
            LiveSetting::DrainDelay => "1s",
            LiveSetting::DrainTimeout => "20s",
            LiveSetting::DriftInterval | LiveSetting::IdleResourceTimeout => "90s",
            LiveSetting::ListsMax | LiveSetting::WatchesMax => "77",
            LiveSetting::LogFilter => "warn,kube_fanout::upstream=debug",
            LiveSetting::LogLevel => "error",
            LiveSetting::MemoryMax => "1GiB",
            LiveSetting::RelayPercent => "0.5",
            LiveSetting::Serving => "passthrough",
            LiveSetting::StalenessBound => "2m",
        };
        stage.write(&format!("{}: {value}\n", setting.key()));
        let new = stage.file.read().unwrap();
        assert_eq!(stage.changed(), (vec![setting.key()], vec![]));
        stage.file.applied(&new.live[0]);
        assert_eq!(stage.changed(), (vec![], vec![]), "{setting:?}");
        // A key that is removed has its default again.
        stage.write("");
        let new = stage.file.read().unwrap();
        assert_eq!(stage.changed(), (vec![setting.key()], vec![]));
        stage.file.applied(&new.live[0]);
    }
    assert_eq!(stage.changed(), (vec![], vec![]));
}

#[test]
fn settings_that_need_a_restart_are_named_until_they_are_as_they_were() {
    let stage = Stage::new("", "ringBytesMax: 16Mi\n");
    stage.write("listen: 127.0.0.1:9443\nwatchesMax: 7\nanonymous: false\nringBytesMax: 8Mi\n");
    let restart = vec!["listen".to_owned(), "ringBytesMax".to_owned()];
    assert_eq!(stage.changed(), (vec!["watchesMax"], restart));
    // The same values in another form are no change.
    stage.write("ringBytesMax: 16777216\n");
    assert_eq!(stage.changed(), (vec![], vec![]));
}

#[test]
fn flags_override_a_changed_file_as_they_did_at_the_start() {
    let stage = Stage::new("--watches-max 9 --listen 127.0.0.1:1234", "");
    stage.write("watchesMax: 7\nlisten: 127.0.0.1:9443\n");
    assert_eq!(stage.changed(), (vec![], vec![]));
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_the_field() {
    let stage = Stage::new("", "");
    let path = stage.file.path();
    for (settings, words) in [
        ("watchesMax: 0\n", "--watches-max must be between 1 and"),
        ("watchesMax: many\n", "gateway.yaml:6: watchesMax: "),
        ("logFilter: loud\n", "gateway.yaml:6: logFilter: "),
        ("drainDelay: 50s\n", "--drain-delay must be between"),
        ("watchMax: 7\n", "gateway.yaml:6: watchMax: unknown key"),
        ("pinResources: [pods.v1, \n", "gateway.yaml:"),
        (
            "pinResources: [events]\n",
            "--pin-resources events: events are never cached",
        ),
        (
            "pinResources: [secrets]\n",
            "--pin-resources secrets: never cached",
        ),
    ] {
        stage.write(settings);
        stage.refused(words);
    }
    fs::write(path, "").unwrap();
    stage.refused("write apiVersion: kube-fanout.dev/v1alpha1");
    fs::write(path, &HEAD[..50]).unwrap();
    stage.refused("write apiVersion: kube-fanout.dev/v1alpha1");
    fs::File::create(path).unwrap().set_len(100 << 20).unwrap();
    stage.refused("longer than 1 MiB");
    fs::remove_file(path).unwrap();
    stage.refused("No such file");
    fs::create_dir(path).unwrap();
    stage.refused("Is a directory");
    fs::remove_dir(path).unwrap();
    stage.write("");
    assert_eq!(stage.changed(), (vec![], vec![]));
}

#[test]
fn no_difference_shows_a_credential() {
    let stage = Stage::new("", "");
    let head = HEAD.replace("http://", "http://jane:hunter2@");
    fs::write(stage.file.path(), head).unwrap();
    let error = stage.file.read().unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn what_is_not_a_regular_file_is_not_read_again() {
    let stage = Stage::new("", "");
    let arguments: Vec<OsString> = ["kube-fanout", "serve", "--plain-http", "--auth=none"]
        .map(OsString::from)
        .to_vec();
    let upstream = OsString::from("--upstream=http://127.0.0.1:8001");
    let arguments = [arguments, vec![upstream]].concat();
    let flags = config::read(arguments.clone(), |_| None).unwrap();
    assert!(ConfigurationFile::new(&flags, arguments.clone(), |_| None).is_none());
    let Command::Serve(mut serve) = flags.command else {
        panic!();
    };
    serve.config = Some(stage.folder.clone());
    let flags = Flags {
        command: Command::Serve(serve),
        process: flags.process,
    };
    assert!(ConfigurationFile::new(&flags, arguments, |_| None).is_none());
}
