//! Finds quotes, backslashes and brackets in 64 bytes of JSON at once, as bit masks. Knows no grammar.
//!
//! This is simdjson's first stage (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", §3.1), with vectors of
//! sixteen bytes, which every x86-64 and aarch64 has.

use wide::u8x16;

/// Bytes per block.
pub(super) const BLOCK_LEN: usize = 64;
const LANE_COUNT: usize = 16;

/// Positions of special bytes in a block, one bit for each byte; the lowest bit is the first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockMasks {
    /// All quotes, escaped ones included.
    quotes: u64,
    backslashes: u64,
    brackets: u64,
}

/// The state that a block passes to the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carry {
    /// 1 if the next byte is escaped, otherwise 0.
    escaped: u64,
    /// All bits set if the next byte is inside a string, otherwise 0.
    in_string: u64,
}

/// Positions of special bytes outside of strings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    /// Square brackets and braces, opening and closing.
    pub(super) brackets: u64,
    /// Backslashes. Valid JSON has none outside of strings.
    pub(super) backslashes: u64,
}

impl BlockMasks {
    #[inline]
    pub(super) fn of(bytes: &[u8; BLOCK_LEN]) -> Self {
        let mut block = Self {
            quotes: 0,
            backslashes: 0,
            brackets: 0,
        };
        let (lanes, _) = bytes.as_chunks::<LANE_COUNT>();
        for (index, lane) in lanes.iter().enumerate() {
            let lane = u8x16::new(*lane);
            let shift = index * LANE_COUNT;
            block.quotes |= bits(lane.simd_eq(u8x16::splat(b'"'))) << shift;
            block.backslashes |= bits(lane.simd_eq(u8x16::splat(b'\\'))) << shift;
            // Braces differ from square brackets in this bit alone.
            let braces = lane | u8x16::splat(b'{' ^ b'[');
            let open = braces.simd_eq(u8x16::splat(b'{'));
            let close = braces.simd_eq(u8x16::splat(b'}'));
            block.brackets |= bits(open | close) << shift;
        }
        block
    }

    /// Removes the positions inside strings, given the state after the previous block.
    #[inline]
    pub(super) fn outside(self, carry: &mut Carry) -> Outside {
        let quotes = self.quotes & !carry.escaped(self.backslashes);
        // This mask includes a string's opening quote, but not its closing quote.
        let in_string = prefix_xor(quotes) ^ carry.in_string;
        carry.in_string = (in_string.cast_signed() >> 63).cast_unsigned();
        Outside {
            brackets: self.brackets & !in_string,
            backslashes: self.backslashes & !in_string,
        }
    }
}

impl Carry {
    /// Positions of escaped bytes: those after an odd number of consecutive backslashes.
    #[inline]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        if backslashes == 0 {
            return std::mem::take(&mut self.escaped);
        }
        // The borrow of the subtraction distinguishes runs that begin at an odd position from runs that begin at an even
        // one.
        let beginning = backslashes & !self.escaped;
        let runs = ((beginning << 1 | ODD).wrapping_sub(beginning)) ^ ODD;
        let escaped = runs ^ (backslashes | self.escaped);
        self.escaped = (runs & backslashes) >> 63;
        escaped
    }
}

/// Position of the first quote or backslash in sixteen bytes.
#[inline]
pub(super) fn first_in_string(bytes: &[u8; LANE_COUNT]) -> Option<usize> {
    let lane = u8x16::new(*bytes);
    let found = lane.simd_eq(u8x16::splat(b'"')) | lane.simd_eq(u8x16::splat(b'\\'));
    let found = found.to_bitmask();
    (found != 0).then(|| found.trailing_zeros() as usize)
}

#[inline]
fn bits(lane: u8x16) -> u64 {
    u64::from(lane.to_bitmask())
}

/// Replaces each bit by the exclusive or of itself and all lower bits.
#[inline]
const fn prefix_xor(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ bits << 32
}

#[cfg(test)]
mod tests;
