//! Resource versions: etcd revisions in decimal, comparable since KEP-5504. The gateway uses upstream's and has no numbering of its own.

use std::fmt;
use std::str::FromStr;

/// A resource version as a number. Compare only within one resource (docs/PROTOCOL.md §0.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceVersion(pub u64);

/// Text that is not a resource version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an unsigned 64-bit number")]
pub struct InvalidResourceVersion(String);

impl FromStr for ResourceVersion {
    type Err = InvalidResourceVersion;

    /// Unsigned 64-bit decimal; leading zeros are accepted, a sign is not.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let has_sign = text.starts_with('+');
        match text.parse() {
            Ok(version) if !has_sign => Ok(Self(version)),
            Ok(_) | Err(_) => Err(InvalidResourceVersion(text.to_owned())),
        }
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
        for text in ["abc", "-1", "+1", "", "18446744073709551616"] {
            let fault = InvalidResourceVersion(text.to_owned());
            assert_eq!(text.parse::<ResourceVersion>(), Err(fault), "{text}");
        }
    }
}
