//! Times as Go's RFC 3339 parser reads them: years 0000 to 9999 in any zone. Libraries have a narrower range: they end at the last
//! second that every zone can write. Times are read here, not written.

/// A point in time, as precise as `ObjectMeta` needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instant {
    /// Seconds since 1970 in UTC, rounded down.
    pub(super) second: i64,
    /// Whether there is no fraction of a second.
    is_whole_second: bool,
}

impl Instant {
    /// Go's `Time{}`, which counts as no time: 0001-01-01T00:00:00Z.
    pub(super) const ZERO: Self = Self {
        second: -62_135_596_800,
        is_whole_second: true,
    };
}

/// Parses `2006-01-02T15:04:05.999Z`, or the same with an offset such as `+07:00`; `None` for any other text.
pub(super) fn instant(text: &str) -> Option<Instant> {
    let (clock, rest) = text.as_bytes().split_at_checked(19)?;
    let &[
        y0,
        y1,
        y2,
        y3,
        b'-',
        m0,
        m1,
        b'-',
        d0,
        d1,
        b'T',
        h0,
        h1,
        b':',
        n0,
        n1,
        b':',
        s0,
        s1,
    ] = clock
    else {
        return None;
    };
    let year = number([y0, y1])? * 100 + number([y2, y3])?;
    let month = number([m0, m1]).filter(|month| (1..=12).contains(month))?;
    let day = number([d0, d1]).filter(|day| (1..=days_in(year, month)).contains(day))?;
    let hour = number([h0, h1]).filter(|hour| *hour < 24)?;
    let minute = number([n0, n1]).filter(|minute| *minute < 60)?;
    let second = number([s0, s1]).filter(|second| *second < 60)?;
    let (fraction, zone) = fraction(rest)?;
    let clock = (hour * 60 + minute) * 60 + second;
    Some(Instant {
        second: days_since_1970(year, month, day) * 86_400 + clock - offset(zone)?,
        is_whole_second: fraction.iter().all(|digit| *digit == b'0'),
    })
}

/// The value of two decimal digits.
fn number(digits: [u8; 2]) -> Option<i64> {
    let [tens, ones] = digits;
    let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
    is_number.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
}

/// The digits after the point, if there is one, and the rest of the text.
fn fraction(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let [b'.' | b',', digits @ ..] = rest else {
        return Some((&rest[..0], rest));
    };
    let len = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    (len > 0).then(|| digits.split_at(len))
}

/// The offset of a zone from UTC, in seconds. Like Go, it accepts 24 hours and 60 minutes.
fn offset(zone: &[u8]) -> Option<i64> {
    let (sign, h0, h1, m0, m1) = match *zone {
        [b'Z'] => return Some(0),
        [b'+', h0, h1, b':', m0, m1] => (1, h0, h1, m0, m1),
        [b'-', h0, h1, b':', m0, m1] => (-1, h0, h1, m0, m1),
        _ => return None,
    };
    let hours = number([h0, h1]).filter(|hours| *hours <= 24)?;
    let minutes = number([m0, m1]).filter(|minutes| *minutes <= 60)?;
    Some(sign * (hours * 60 + minutes) * 60)
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970 in the proleptic Gregorian calendar. Years start in March here, so that a leap day is the last day of its year.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    const TO_1970: i64 = 719_468;
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let year = if month > 2 { year } else { year - 1 };
    let month = if month > 2 { month - 3 } else { month + 9 };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year * 365 + year / 4 - year / 100 + day_of_year;
    era * DAYS_OF_400_YEARS + day_of_era - TO_1970
}
