//! Reads audit logs, however long, line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use flate2::bufread::MultiGzDecoder;

use super::audit_entry::AuditedRead;
use super::cloud_entry::cloud_entry;
use super::lines::{FileLine, LineProblems, LineReader};
use super::read_error::ReadError;
use super::usage::{AuditUsage, UsageSums};

/// The first bytes of every gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BUFFER_LEN: usize = 1 << 16;

/// An audit log that is being read.
struct AuditFile {
    name: String,
    lines: LineReader<Box<dyn BufRead>>,
    problems: LineProblems,
    /// Why the file could not be read to its end.
    failure: Option<io::Error>,
}

/// The time of an entry in seconds of Unix time, and what it tells.
type TimedEntry = (f64, Option<AuditedRead>);

/// What all files together tell of the time from `counts_from` on, and what is to be said of them; no sums if no file has an entry.
///
/// # Errors
/// A file cannot be opened.
pub(super) fn read(
    paths: &[PathBuf],
    counts_from: Option<f64>,
) -> Result<(Option<UsageSums>, Vec<String>), ReadError> {
    let (mut files, mut empty) = (Vec::new(), Vec::new());
    for path in paths {
        let mut file = AuditFile::open(path)?;
        match file.next() {
            Some(first) => files.push((first, file)),
            None => empty.push(file),
        }
    }
    // The parts of one server's log are read in their order, so a request's stages come one after the other.
    files.sort_by(|((one, _), _), ((other, _), _)| one.total_cmp(other));
    let begins_at = files
        .first()
        .map(|((time, _), _)| time.max(counts_from.unwrap_or(*time)));
    let mut usage = begins_at.map(AuditUsage::new);
    let mut notes = Vec::new();
    for (first, mut file) in files {
        let mut next = Some(first);
        while let (Some((time, read)), Some(usage)) = (next, usage.as_mut()) {
            usage.reach(time);
            if let Some(read) = read {
                usage.add(&read);
            }
            next = file.next();
        }
        notes.extend(file.notes());
    }
    for file in empty {
        notes.push(format!("{}: no event of an audit log is in it", file.name));
        notes.extend(file.notes());
    }
    Ok((usage.map(AuditUsage::finish), notes))
}

impl AuditFile {
    fn open(path: &PathBuf) -> Result<Self, ReadError> {
        let name = path.display().to_string();
        let reader = File::open(path).and_then(|file| {
            let mut plain = BufReader::with_capacity(BUFFER_LEN, file);
            let is_gzip = plain.fill_buf()?.starts_with(&GZIP_MAGIC);
            Ok(if is_gzip {
                let plain = MultiGzDecoder::new(plain);
                Box::new(BufReader::with_capacity(BUFFER_LEN, plain)) as Box<dyn BufRead>
            } else {
                Box::new(plain)
            })
        });
        let reader = reader.map_err(|source| ReadError {
            name: name.clone(),
            source,
        })?;
        Ok(Self {
            name,
            lines: LineReader::new(reader),
            problems: LineProblems::default(),
            failure: None,
        })
    }

    /// The next line that is an entry.
    fn next(&mut self) -> Option<TimedEntry> {
        loop {
            let number = self.lines.number() + 1;
            let line = match self.lines.read() {
                Ok(line) => line?,
                Err(error) => {
                    self.failure = Some(error);
                    return None;
                }
            };
            match line {
                FileLine::TooLong => self.problems.note(number, "longer than 1 MiB"),
                FileLine::Whole(b"") => {}
                FileLine::Whole(text) | FileLine::Cut(text) => match cloud_entry(text) {
                    Ok(entry) => return Some(entry),
                    Err(error) => self.problems.note(number, error),
                },
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.problems.count() > 0 {
            notes.push(format!("{}: {}", self.name, self.problems));
        }
        if let Some(failure) = &self.failure {
            notes.push(format!(
                "{} cannot be read beyond line {}: {failure}; what is before counts",
                self.name,
                self.lines.number()
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests;
