//! The log file. Whoever wants it rotated moves it away, as logrotate does: a new file is then created.
//!
//! Folders are created only at start: a folder that disappears later is probably a volume that is no longer mounted.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::writer::Output;

/// How often to check that the path still names the open file.
const MOVE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The log file, or standard output.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    open: Option<OpenLog>,
    move_checked_at: Instant,
    /// Bytes of the current line that are already in the file.
    written: usize,
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    /// Files that are not regular, such as `/dev/stdout` or a pipe, are not checked for a move.
    is_regular: bool,
}

impl LogFile {
    /// Opens the file for appending, and creates its folder if necessary.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        Ok(Self {
            path: path.to_owned(),
            open: Some(OpenLog::at(path)?),
            move_checked_at: Instant::now(),
            written: 0,
        })
    }

    /// Standard output.
    pub(super) fn stdout() -> io::Result<Self> {
        use std::os::fd::AsFd;
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self {
            path: PathBuf::new(),
            open: Some(OpenLog {
                file,
                is_regular: false,
            }),
            move_checked_at: Instant::now(),
            written: 0,
        })
    }

    /// Closes the file if its path no longer names it.
    fn check_moved(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.move_checked_at) < MOVE_CHECK_INTERVAL {
            return;
        }
        self.move_checked_at = now;
        let Some(open) = self.open.as_ref().filter(|open| open.is_regular) else {
            return;
        };
        let at_path = fs::metadata(&self.path).ok();
        let opened = open.file.metadata().ok();
        let is_moved = !at_path
            .zip(opened)
            .is_some_and(|(one, other)| is_same(&one, &other));
        if is_moved {
            self.open = None;
            // The next file gets the current line from its beginning.
            self.written = 0;
        }
    }
}

impl OpenLog {
    fn at(path: &Path) -> io::Result<Self> {
        // Readable by the gateway's user only: the log shows who requests what.
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let metadata = file.metadata()?;
        let is_regular = metadata.is_file();
        if is_regular && metadata.len() > 0 {
            // End a line that a process was writing when it was killed.
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { file, is_regular })
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

impl Output for LogFile {
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.check_moved();
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenLog::at(&self.path)?),
        };
        while self.written < line.len() {
            match open.file.write(&line[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
