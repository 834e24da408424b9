//! Bodies that may be compressed, decoded as they come.

use std::borrow::Cow;
use std::io::Write;

use anyhow::{Context, Result};
use flate2::write::GzDecoder;

/// The first byte of gzip. No list and no event begins with it.
const MAGIC: u8 = 0x1f;

/// Decodes one body after the other.
#[derive(Debug, Default)]
pub struct Gunzip {
    decoder: Option<Box<GzDecoder<Vec<u8>>>>,
    has_begun: bool,
}

impl Gunzip {
    /// What the next bytes of the body add.
    pub fn feed<'a>(&mut self, data: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first && data.first() == Some(&MAGIC) {
            self.decoder = Some(Box::new(GzDecoder::new(Vec::new())));
        }
        let Some(decoder) = &mut self.decoder else {
            return Ok(Cow::Borrowed(data));
        };
        let written = decoder.write_all(data).and_then(|()| decoder.flush());
        written.context("not gzip")?;
        Ok(Cow::Owned(std::mem::take(decoder.get_mut())))
    }

    /// Ends the body. One that `is_complete` must be a whole member.
    pub fn end(&mut self, is_complete: bool) -> Result<()> {
        match std::mem::take(self).decoder {
            Some(mut decoder) if is_complete => decoder.try_finish().context("not one gzip member"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn bodies_are_decoded_whether_compressed_or_not() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"{\"type\":\"ADDED\"}\n").unwrap();
        let member = encoder.finish().unwrap();
        let mut gunzip = Gunzip::default();
        let mut decode = |body: &[u8], is_complete| {
            let mut decoded = Vec::new();
            for piece in body.chunks(3) {
                decoded.extend_from_slice(&gunzip.feed(piece)?);
            }
            gunzip.end(is_complete)?;
            anyhow::Ok(decoded)
        };
        assert_eq!(decode(&member, true).unwrap(), b"{\"type\":\"ADDED\"}\n");
        assert_eq!(decode(b"plain", true).unwrap(), b"plain");
        decode(&member[..20], false).unwrap();
        decode(&member[..20], true).unwrap_err();
        decode(b"\x1fnonsense", true).unwrap_err();
    }
}
