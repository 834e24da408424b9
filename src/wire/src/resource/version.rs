//! Resource versions: etcd revisions in decimal, comparable since KEP-5504. The gateway uses upstream's and has no numbering of its own.

use std::fmt;
use std::str::FromStr;

/// A resource version as a number. Compare only within one resource (docs/PROTOCOL.md §0.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceVersion(pub u64);

/// Text that is not a resource version; the message is that of Go's `strconv.ParseUint`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("strconv.ParseUint: parsing {text}: {fault}")]
pub struct InvalidResourceVersion {
    /// The text in double quotes.
    pub text: String,
    /// `invalid syntax` or `value out of range`.
    pub fault: &'static str,
}

impl FromStr for ResourceVersion {
    type Err = InvalidResourceVersion;

    /// Unsigned 64-bit decimal; leading zeros are accepted, a sign is not.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = |fault| InvalidResourceVersion {
            text: format!("{text:?}"),
            fault,
        };
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fault("invalid syntax"));
        }
        text.parse()
            .map(Self)
            .map_err(|_| fault("value out of range"))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_as_go_does() {
        assert_eq!("007".parse(), Ok(ResourceVersion(7)));
        for (text, fault) in [
            ("abc", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("+1", "invalid syntax"),
            ("", "invalid syntax"),
            ("18446744073709551616", "value out of range"),
        ] {
            assert_eq!(
                text.parse::<ResourceVersion>().map_err(|e| e.fault),
                Err(fault),
                "{text}"
            );
        }
    }
}
