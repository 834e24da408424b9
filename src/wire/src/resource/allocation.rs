//! How much memory an allocation takes: its length, rounded up as the allocator does. For accounts of memory, not for allocating.

/// Allocations up to this length have a multiple of 16 bytes.
const FINE_LEN_MAX: usize = 64;
/// Longer ones up to this length have one of four lengths between two powers of two.
const CLASS_LEN_MAX: usize = 64 << 10;
/// The longest ones have whole pages of the system.
const PAGE_LEN: usize = 4 << 10;

/// Bytes that mimalloc sets aside for an allocation of `len` bytes. Other allocators differ by a few percent.
#[must_use]
pub const fn allocated_len(len: usize) -> usize {
    if len == 0 {
        0
    } else if len <= FINE_LEN_MAX {
        len.next_multiple_of(16)
    } else if len <= CLASS_LEN_MAX {
        // The largest power of two below `len`, in four steps.
        let step = (1 << (len - 1).ilog2()) / 4;
        len.next_multiple_of(step)
    } else {
        len.next_multiple_of(PAGE_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_as_the_allocator_does() {
        for (len, expected) in [
            (0, 0),
            (1, 16),
            (16, 16),
            (17, 32),
            (64, 64),
            (65, 80),
            (81, 96),
            (112, 112),
            (128, 128),
            (129, 160),
            (1_025, 1_280),
            (1_280, 1_280),
            (1_281, 1_536),
            (65_536, 65_536),
            (65_537, 69_632),
        ] {
            assert_eq!(allocated_len(len), expected, "{len}");
        }
        for len in 1..200_000 {
            let rounded = allocated_len(len);
            assert!(
                rounded >= len && rounded - len < len.div_ceil(4).max(16),
                "{len}"
            );
            assert_eq!(allocated_len(rounded), rounded, "{len}");
        }
    }
}
