//! Reads the protobuf `Status` of an error response or an ERROR event. Does not decide how to react to it.

use crate::decode::json::{ScanError, span};
use crate::decode::status::{UpstreamStatus, code_of, scan_status};
use crate::resource::ByteSpan;
use crate::resource::wire::{MAGIC, WireFields};

use super::fields::{bytes_of, integer, text};
use super::unknown::Unknown;

/// Reads a `Status`: a whole response body with its envelope, or the bare message of an ERROR event.
///
/// Other bytes are read by [`scan_status`], because proxies between the gateway and the API server respond in JSON or plain
/// text.
#[must_use]
pub fn scan_protobuf_status(bytes: &[u8]) -> UpstreamStatus {
    match read(bytes) {
        Ok(Some(status)) => status,
        Ok(None) | Err(_) => scan_status(bytes),
    }
}

/// Returns `None` if the bytes are protobuf but not a Status, which has a code or a reason.
fn read(bytes: &[u8]) -> Result<Option<UpstreamStatus>, ScanError> {
    let mut raw = span(0, bytes.len())?;
    if bytes.starts_with(MAGIC) {
        let unknown = Unknown::read_body(bytes)?;
        if unknown.types(bytes)?.1 != "Status" {
            return Ok(None);
        }
        raw = unknown.raw;
    }
    let mut code = 0;
    let mut details = ProtobufDetails::default();
    let mut status = UpstreamStatus::of_code(0);
    for field in WireFields::within(bytes, raw) {
        let field = field?;
        match field.number {
            3 => text(bytes, &field)?.clone_into(&mut status.message),
            4 => text(bytes, &field)?.clone_into(&mut status.reason),
            5 => details.read(bytes, bytes_of(&field, "details")?)?,
            6 => code = integer(&field, "a code")?,
            _ => {}
        }
    }
    let code = u64::try_from(code).ok();
    let Some(code) = code_of(code, Some(&status.reason)) else {
        return Ok(None);
    };
    Ok(Some(UpstreamStatus {
        code,
        retry_after_seconds: details.retry_after_seconds,
        version_too_large: details.version_too_large
            // Servers before 1.18 send no cause.
            || status.message.contains("Too large resource version"),
        ..status
    }))
}

#[derive(Default)]
struct ProtobufDetails {
    retry_after_seconds: Option<u32>,
    version_too_large: bool,
}

impl ProtobufDetails {
    fn read(&mut self, bytes: &[u8], message: ByteSpan) -> Result<(), ScanError> {
        for field in WireFields::within(bytes, message) {
            let field = field?;
            match field.number {
                4 => self.cause(bytes, bytes_of(&field, "a cause")?)?,
                5 => {
                    let seconds = integer(&field, "retryAfterSeconds")?;
                    self.retry_after_seconds = u32::try_from(seconds).ok().filter(|&s| s > 0);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn cause(&mut self, bytes: &[u8], message: ByteSpan) -> Result<(), ScanError> {
        for field in WireFields::within(bytes, message) {
            let field = field?;
            if field.number == 1 && text(bytes, &field)? == "ResourceVersionTooLarge" {
                self.version_too_large = true;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
