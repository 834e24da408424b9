//! gzip of lists: one member made of blocks that were compressed apart, so that they can be kept and shared.
//!
//! When a list is compressed is decided here as well (docs/PROTOCOL.md §5.7). Watches never are.

mod compressor;
mod encoder;
mod member;

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

pub use compressor::{BlockCompressor, CompressError};
pub use encoder::Encoder;
pub use member::GzipMember;

/// Bodies up to this length are sent as they are.
pub const PLAIN_LEN_MAX: usize = 128 << 10;

/// Whether the client takes gzip: the server looks for the bare word among the elements of the first header, and takes
/// neither parameters nor other spellings of it.
#[must_use]
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let value = headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.split(',').any(|element| element.trim() == "gzip"))
}

#[cfg(test)]
mod tests;
