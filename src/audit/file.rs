//! The file of events: rotated by size, kept by number and age, as kube-apiserver's (lumberjack's) names and rules have it.
//!
//! A file that somebody else has moved away, such as logrotate, is followed by a new one. Folders are made at start only: one
//! that has gone later is probably a volume that is not mounted.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::writer::Output;

/// Whether the file is still in its place is looked at once in this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const BACKUP_TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";
/// Names tried for a backup, a millisecond apart, before one is replaced.
const NAMES_MAX: i64 = 1000;

/// How much is kept. Zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogRetention {
    /// Bytes of the file.
    pub(super) len_max: u64,
    /// Files that were rotated.
    pub(super) backups_max: usize,
    /// Age of a rotated file, from its rotation on.
    pub(super) age_max: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    retention: LogRetention,
    open: Option<OpenLog>,
    looked_at: Instant,
    /// Bytes of the present line that are in the file.
    written: usize,
    trouble: Option<io::Error>,
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    len: u64,
    /// Others, such as `/dev/stdout` or a pipe, are neither rotated nor followed.
    is_regular: bool,
}

impl LogFile {
    /// Opens it for appending, and makes its folder if need be.
    pub(super) fn open(path: &Path, retention: LogRetention) -> io::Result<Self> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let mut file = Self {
            path: path.to_owned(),
            retention,
            open: Some(OpenLog::at(path)?),
            looked_at: Instant::now(),
            written: 0,
            trouble: None,
        };
        file.sweep();
        Ok(file)
    }

    /// Standard output, which is not rotated.
    pub(super) fn stdout() -> io::Result<Self> {
        use std::os::fd::AsFd;
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self {
            path: PathBuf::new(),
            retention: LogRetention::default(),
            open: Some(OpenLog {
                file,
                len: 0,
                is_regular: false,
            }),
            looked_at: Instant::now(),
            written: 0,
            trouble: None,
        })
    }

    /// Leaves a file that is no longer in its place; else learns its length, which others may have cut.
    fn follow(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.looked_at) < LOOK_INTERVAL {
            return;
        }
        self.looked_at = now;
        let Some(open) = self.open.as_mut().filter(|open| open.is_regular) else {
            return;
        };
        let place = fs::metadata(&self.path).ok();
        match (place, open.file.metadata()) {
            (Some(place), Ok(ours)) if is_same(&place, &ours) => open.len = ours.len(),
            _ => self.leave(),
        }
    }

    fn leave(&mut self) {
        self.open = None;
        // The line begins anew in the next file.
        self.written = 0;
    }

    fn is_full_for(&self, line: &[u8]) -> bool {
        let max = self.retention.len_max;
        let open = self
            .open
            .as_ref()
            .filter(|open| open.is_regular && open.len > 0);
        max > 0 && open.is_some_and(|open| open.len + line.len() as u64 > max)
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let names = (0..NAMES_MAX).filter_map(|later| {
            let at = now
                .checked_add(jiff::Span::new().milliseconds(later))
                .ok()?;
            Some(self.backup_path(at))
        });
        let free = names
            .into_iter()
            .find(|name| fs::symlink_metadata(name).is_err());
        fs::rename(&self.path, free.unwrap_or_else(|| self.backup_path(now)))?;
        self.leave();
        self.open = Some(OpenLog::at(&self.path)?);
        self.sweep();
        Ok(())
    }

    fn backup_path(&self, at: Timestamp) -> PathBuf {
        let (start, end) = self.backup_affixes();
        let time = at.strftime(BACKUP_TIME);
        self.path.with_file_name(format!("{start}{time}{end}"))
    }

    /// What stands before and after the time in a backup's name.
    fn backup_affixes(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.map(|part| part.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let end = self
            .path
            .extension()
            .map(|_| format!(".{}", text(self.path.extension())));
        (
            format!("{}-", text(self.path.file_stem())),
            end.unwrap_or_default(),
        )
    }

    /// Removes backups that are too many or too old.
    fn sweep(&mut self) {
        if let Err(error) = self.swept(Timestamp::now()) {
            self.trouble = Some(error);
        }
    }

    fn swept(&self, now: Timestamp) -> io::Result<()> {
        let LogRetention {
            backups_max,
            age_max,
            ..
        } = self.retention;
        if backups_max == 0 && age_max.is_zero() {
            return Ok(());
        }
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let mut backups = Vec::new();
        for entry in fs::read_dir(folder.unwrap_or_else(|| Path::new(".")))? {
            let entry = entry?;
            if let Some(at) = self.rotated_at(&entry.file_name().to_string_lossy()) {
                backups.push((at, entry.path()));
            }
        }
        backups.sort();
        backups.reverse();
        let mut failed = None;
        for (number, (at, path)) in backups.iter().enumerate() {
            let age = Duration::try_from(now.duration_since(*at)).unwrap_or_default();
            let is_over = backups_max > 0 && number >= backups_max;
            if is_over || !age_max.is_zero() && age > age_max {
                failed = fs::remove_file(path).err().or(failed);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// When a file of this name was rotated; `None` for files that are not ours.
    fn rotated_at(&self, name: &str) -> Option<Timestamp> {
        let (start, end) = self.backup_affixes();
        let time = name
            .strip_prefix(start.as_str())?
            .strip_suffix(end.as_str())?;
        let time = DateTime::strptime(BACKUP_TIME, time).ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    }
}

impl OpenLog {
    fn at(path: &Path) -> io::Result<Self> {
        // Only the gateway's user may read it: it tells who asks for what.
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let metadata = file.metadata()?;
        let is_regular = metadata.is_file();
        let mut len = metadata.len();
        if is_regular && len > 0 {
            // A process that died in the middle of a line has not ended it.
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                len += 1;
            }
        }
        Ok(Self {
            file,
            len,
            is_regular,
        })
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

impl Output for LogFile {
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.follow();
        if self.written == 0 && self.is_full_for(line) {
            self.rotate(Timestamp::now())?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenLog::at(&self.path)?),
        };
        while self.written < line.len() {
            match open.file.write(&line[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    open.len += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        Ok(())
    }

    fn trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }
}

#[cfg(test)]
mod tests;
