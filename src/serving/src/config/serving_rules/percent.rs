//! A percentage, in millionths of the whole.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A percentage: a number from 0 to 100 with at most four decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percent(u32);

const WHOLE: u32 = 1_000_000;
const PER_PERCENT: f64 = 10_000.0;

impl Percent {
    pub(super) const ALL: Self = Self(WHOLE);

    /// Whether a place from 0 up to 1 is below it.
    pub(super) fn covers(self, place: f64) -> bool {
        place * f64::from(WHOLE) < f64::from(self.0)
    }

    /// Whether all are below it, or none; `None` if that depends on the place.
    pub(super) fn of_all(self) -> Option<bool> {
        match self.0 {
            0 => Some(false),
            WHOLE => Some(true),
            _ => None,
        }
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 10_000 {
            0 => serializer.serialize_u32(self.0 / 10_000),
            _ => serializer.serialize_f64(f64::from(self.0) / PER_PERCENT),
        }
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if !(0.0..=100.0).contains(&number) {
            return Err(D::Error::custom("percent: write a number from 0 to 100"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to 1,000,000"
        )]
        let millionths = (number * PER_PERCENT).round() as u32;
        // A percentage that somebody has written is not none of them.
        let least = u32::from(number > 0.0);
        Ok(Self(millionths.max(least)))
    }
}
