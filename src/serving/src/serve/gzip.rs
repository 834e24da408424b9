//! Compresses lists with gzip: one member made of blocks that are compressed separately, so that they can be kept and shared.
//!
//! [`gzip_reader`] and [`PLAIN_LEN_MAX`] decide when a list is compressed (docs/PROTOCOL.md §5.7).

mod compressor;
mod encoder;

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

pub use compressor::{BlockCompressor, CompressError};
pub use encoder::Encoder;

use crate::resource::GATEWAY_GZIP;

/// Bodies up to this length, in bytes, are not compressed.
pub const PLAIN_LEN_MAX: usize = 128 << 10;

/// Who accepts gzip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GzipReader {
    /// A client for which the API server compresses, too.
    Client,
    /// A gateway, which decodes each block at once.
    Gateway,
}

/// Who accepts gzip, if the sender of this request does. Like the API server, only exact elements of the first header count, without
/// parameters and in lower case: `gzip`, or else [`GATEWAY_GZIP`].
#[must_use]
pub fn gzip_reader(headers: &HeaderMap) -> Option<GzipReader> {
    let value = headers.get(ACCEPT_ENCODING)?.to_str().ok()?;
    let accepts = |coding| value.split(',').any(|element| element.trim() == coding);
    match accepts("gzip") {
        true => Some(GzipReader::Client),
        false => accepts(GATEWAY_GZIP).then_some(GzipReader::Gateway),
    }
}

#[cfg(test)]
mod tests;
