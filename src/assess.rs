//! `kube-fanout assess`: what a gateway would take off the API servers, from their metrics and audit logs (docs/ASSESS.md).
//!
//! Files are read here and in `audit_files`; all else is calculation. `lines` bounds what is read, `exposition` and `scrape` read metrics,
//! `audit_entry`, `cloud_entry` and `usage` audit logs. `servers` makes rates of counters, `readers` divides them among clients, which
//! `client` knows, `assumptions` has what gateways ask, `estimate` brings both together. `document` is the result, `table` and `page` show
//! it.

mod assumptions;
mod audit_entry;
mod audit_files;
mod client;
mod cloud_entry;
mod columns;
mod document;
mod estimate;
mod exposition;
mod figures;
mod group_resource;
mod lines;
mod page;
mod read_error;
mod readers;
mod scrape;
mod servers;
mod summary;
mod table;
mod usage;

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::config::AssessSettings;
use crate::printable::clean;
use assumptions::Assumptions;
use document::{AssessDocument, AssessFrame};
use estimate::estimate;
use lines::LineReader;
pub use read_error::ReadError;
use scrape::Scrape;
use servers::{ScrapeFile, ServerRates};
use usage::UsageSums;

/// A server's last garbage collection is at most so long before its scrape.
const COLLECTION_AGE_SECONDS: f64 = 120.0;
/// Audit logs that lack more than this share of the time between the scrapes are worth a note.
const WINDOW_TOLERANCE: f64 = 0.2;

/// Why there is no assessment.
#[derive(Debug, thiserror::Error)]
pub enum AssessError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No two scrapes belong together.
    #[error("no server has two scrapes that can be used: {0}")]
    NoPair(String),
    /// The result cannot be written.
    #[error("cannot write {name}")]
    Write {
        /// The file.
        name: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Reads, calculates, and writes what the settings ask for; the table goes to `stdout`.
///
/// # Errors
/// Nothing can be assessed, or the result cannot be written.
pub fn run(settings: &AssessSettings, stdout: &mut dyn Write) -> Result<(), AssessError> {
    let document = assess(settings)?;
    let mut shows_table = true;
    let json = settings.json.as_ref().map(|path| (path, document.json()));
    let html = settings.html.as_ref();
    let html = html.map(|path| (path, page::page(&document)));
    for (path, text) in json.into_iter().chain(html) {
        if path == Path::new("-") {
            shows_table = false;
            write(stdout, &text)?;
        } else {
            std::fs::write(path, text).map_err(|source| AssessError::Write {
                name: path.display().to_string(),
                source,
            })?;
        }
    }
    if shows_table {
        write(stdout, &table::table(&document))?;
    }
    Ok(())
}

/// A reader that closed the pipe, such as `head`, has seen enough.
fn write(stdout: &mut dyn Write, text: &str) -> Result<(), AssessError> {
    match stdout.write_all(text.as_bytes()) {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => Err(AssessError::Write {
            name: "standard output".to_owned(),
            source,
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn assess(settings: &AssessSettings) -> Result<AssessDocument, AssessError> {
    let mut notes = Vec::new();
    let mut scrapes = |paths: &[PathBuf]| -> Result<Vec<ScrapeFile>, AssessError> {
        let files = paths.iter().map(|path| read_scrape(path, &mut notes));
        files.filter_map(Result::transpose).collect()
    };
    let (before, after) = (scrapes(&settings.before)?, scrapes(&settings.after)?);
    // Files' times are those of copies, where files were copied.
    let times = |files: &[ScrapeFile]| {
        let times = files.iter().filter_map(|file| file.scrape.collected_at);
        times.reduce(f64::max)
    };
    let (begins_at, ends_at) = (times(&before), times(&after));
    let mut rates = ServerRates::new(before, after, settings.window);
    if rates.server_count == 0 {
        notes.append(&mut rates.notes);
        return Err(AssessError::NoPair(clean(&notes.join("; "))));
    }
    notes.append(&mut rates.notes);
    let (usage, audit_notes) = audit_files::read(&settings.audit, begins_at)?;
    notes.extend(audit_notes);
    if let Some(usage) = &usage {
        notes.extend(usage.notes.iter().cloned());
        notes.extend(window_note(usage, &rates, ends_at));
    }
    let assumptions = Assumptions {
        gateways: f64::from(settings.gateways),
        encodings: f64::from(settings.encodings),
        cached: settings.cached.clone(),
    };
    let estimate = estimate(&rates, usage.as_ref(), &assumptions);
    let frame = AssessFrame {
        window_seconds: rates.window_seconds,
        servers: rates.server_count,
        audit_seconds: usage.map(|usage| usage.window_seconds),
        gateways: settings.gateways,
        encodings: settings.encodings,
    };
    // Names of files and what is wrong with their lines are texts of others.
    let notes = notes.iter().map(|note| clean(note)).collect();
    Ok(AssessDocument::new(&estimate, &frame, notes))
}

/// Reads a scrape; `None` if it cannot be used, with a note.
fn read_scrape(path: &Path, notes: &mut Vec<String>) -> Result<Option<ScrapeFile>, AssessError> {
    let name = path.display().to_string();
    let failed = |source| ReadError {
        name: name.clone(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let modified = modified.ok();
    let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let mut scrape = Scrape::default();
    let mut lines = LineReader::new(BufReader::new(file));
    loop {
        let number = lines.number() + 1;
        match lines.read().map_err(failed)? {
            Some(line) => scrape.add(number, &line),
            None => break,
        }
    }
    if scrape.problems.count() > 0 {
        notes.push(format!("{name}: {}", scrape.problems));
    }
    if let Some(defect) = scrape.defect() {
        notes.push(format!("{name} is left out: {defect}"));
        return Ok(None);
    }
    Ok(Some(ScrapeFile {
        name,
        modified_at: modified.map(|time| time.as_secs_f64()),
        scrape,
    }))
}

/// An audit log that does not reach over the time between the scrapes may lack clients.
fn window_note(usage: &UsageSums, rates: &ServerRates, ends_at: Option<f64>) -> Option<String> {
    let (audit, scrapes) = (usage.window_seconds, rates.window_seconds);
    let covered = ends_at.map_or(audit, |end| {
        let begin = usage.begins_at.max(end - scrapes);
        (usage.begins_at + audit).min(end) - begin
    });
    (covered + COLLECTION_AGE_SECONDS < (1.0 - WINDOW_TOLERANCE) * scrapes).then(|| {
        format!(
            "the audit logs cover {:.0} s of the {scrapes:.0} s between the scrapes: clients may be missing, and their shares are those of another time",
            covered.max(0.0)
        )
    })
}

#[cfg(test)]
mod tests;
