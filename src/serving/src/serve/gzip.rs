//! Compresses lists with gzip: one member made of blocks that are compressed separately, so that they can be kept and shared.
//!
//! [`accepts_gzip`] and [`PLAIN_LEN_MAX`] decide when a list is compressed (docs/PROTOCOL.md §5.7).

mod compressor;
mod encoder;

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

pub use compressor::{BlockCompressor, CompressError};
pub use encoder::Encoder;

/// Bodies up to this length, in bytes, are not compressed.
pub const PLAIN_LEN_MAX: usize = 128 << 10;

/// Whether the client accepts gzip. Like the API server, only the exact element `gzip` in the first header counts, without
/// parameters and in lower case.
#[must_use]
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let value = headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.split(',').any(|element| element.trim() == "gzip"))
}

#[cfg(test)]
mod tests;
