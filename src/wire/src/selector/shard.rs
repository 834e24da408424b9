//! Shard selectors (KEP-5866, docs/PROTOCOL.md §2.7): objects whose uid or namespace hashes into given ranges.

use std::fmt;

use crate::resource::Object;

/// Ranges of a 64-bit hash space; an object is selected if its hash is in one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardSelector {
    field: ShardField,
    ranges: Box<[Range]>,
}

/// The field that is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ShardField {
    Uid,
    Namespace,
}

/// `start..end`; the end may be 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Range {
    start: u128,
    end: u128,
}

/// The end of the hash space.
const END: u128 = 1 << 64;

impl ShardSelector {
    /// Parses a shard selector that is valid in any case; `None` if upstream must decide.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut field = None;
        let mut ranges = Vec::new();
        for term in text.split("||") {
            let (named, range) = term_of(term)?;
            if *field.get_or_insert(named) != named {
                return None;
            }
            ranges.push(range);
        }
        Some(Self {
            field: field?,
            ranges: ranges.into(),
        })
    }

    /// Number of ranges.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the object is in the shard.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        let value = match self.field {
            ShardField::Uid => object.uid(),
            ShardField::Namespace => object.key().namespace(),
        };
        let hash = u128::from(fnv1a(value.as_bytes()));
        self.ranges
            .iter()
            .any(|range| (range.start..range.end).contains(&hash))
    }
}

impl fmt::Display for ShardSelector {
    /// The form in which upstream reports it in `metadata.shardInfo`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = match self.field {
            ShardField::Uid => "uid",
            ShardField::Namespace => "namespace",
        };
        for (index, Range { start, end }) in self.ranges.iter().enumerate() {
            let before = if index > 0 { " || " } else { "" };
            write!(
                f,
                "{before}shardRange(object.metadata.{field}, '0x{start:016x}', '0x{end:016x}')"
            )?;
        }
        Ok(())
    }
}

/// Parses `shardRange(object.metadata.uid, '0x…', '0x…')`, with blanks around any part.
fn term_of(text: &str) -> Option<(ShardField, Range)> {
    let inside = text
        .trim_matches(' ')
        .strip_prefix("shardRange(")?
        .strip_suffix(')')?;
    let mut arguments = inside.split(',').map(|argument| argument.trim_matches(' '));
    let field = match arguments.next()? {
        "object.metadata.uid" => ShardField::Uid,
        "object.metadata.namespace" => ShardField::Namespace,
        _ => return None,
    };
    let (start, end) = (bound(arguments.next()?)?, bound(arguments.next()?)?);
    let is_whole = arguments.next().is_none() && start < end && start < END;
    is_whole.then_some((field, Range { start, end }))
}

fn bound(text: &str) -> Option<u128> {
    let digits = text.strip_prefix("'0x")?.strip_suffix('\'')?;
    let is_end = digits == "10000000000000000";
    let fits = digits.len() == 16
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'))
        || is_end;
    fits.then(|| u128::from_str_radix(digits, 16).ok())?
}

/// FNV-1a, 64 bits (draft-eastlake-fnv, section 5).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ObjectParts;

    const HALF: &str =
        "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')";

    #[test]
    fn the_shard_hash_is_fnv_1a_as_in_the_kep() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_shard_selector_is_formatted_as_upstream_formats_it() {
        let written = "shardRange(object.metadata.uid,  '0x0000000000000000' ,'0x8000000000000000')||shardRange(object.metadata.uid,'0x8000000000000000','0x9000000000000000')";
        let canonical = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(object.metadata.uid, '0x8000000000000000', '0x9000000000000000')";
        assert_eq!(
            ShardSelector::parse(written).unwrap().to_string(),
            canonical
        );
        assert_eq!(ShardSelector::parse(written).unwrap().range_count(), 2);
        assert_eq!(ShardSelector::parse(HALF).unwrap().to_string(), HALF);
    }

    #[test]
    fn a_namespace_is_in_one_shard_as_a_whole() {
        let upper = HALF.replace("uid", "namespace");
        let upper = ShardSelector::parse(&upper).unwrap();
        assert_eq!(upper.to_string(), HALF.replace("uid", "namespace"));
        for (namespace, uid) in [("a", "1"), ("a", "2"), ("foobar", "1"), ("", "1")] {
            let parts = ObjectParts {
                namespace: namespace.into(),
                uid: uid.into(),
                ..ObjectParts::default()
            };
            let is_upper = fnv1a(namespace.as_bytes()) >> 63 == 1;
            assert_eq!(upper.matches(&Object::new(parts, b"{}")), is_upper);
        }
    }

    #[test]
    fn other_shard_selectors_are_forwarded() {
        for text in [
            "",
            " ",
            "foo",
            "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')",
            "shardRange(object.metadata.uid, '0x8000000000000000', '0x0000000000000000')",
            "shardRange(object.metadata.uid, '0x8000000000000000', '0x8000000000000000')",
            "shardRange(object.metadata.uid, '0x10000000000000000', '0x10000000000000000')",
            "shardRange(object.metadata.uid, '0x0', '0x8000000000000000')",
            "shardRange(object.metadata.uid, '0x000000000000000A', '0x8000000000000000')",
            "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')",
        ] {
            assert_eq!(ShardSelector::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_object_is_in_one_half() {
        let lower = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
        let halves = [HALF, lower].map(|text| ShardSelector::parse(text).unwrap());
        let mut counts = [0, 0];
        for seed in 0..100_u128 {
            let parts = ObjectParts {
                name: "x".into(),
                uid: format!(
                    "{:032x}",
                    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                )
                .into(),
                ..ObjectParts::default()
            };
            let object = Object::new(parts, b"{}");
            let found = halves.each_ref().map(|half| half.matches(&object));
            assert_ne!(found[0], found[1]);
            counts[usize::from(found[0])] += 1;
        }
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }
}
