//! The versions of a stream as steps from one to the next, seven bits a byte: 5,000 watchers of 3,000 events need 15 MB.

/// Most bytes of one stream; later events are only counted and hashed.
const STEPS_LEN_MAX: usize = 256 * 1024;

/// The recorded steps of one stream.
#[derive(Debug, Default)]
pub struct Steps {
    bytes: Vec<u8>,
    cut: bool,
}

impl Steps {
    /// Adds the distance to the previous version.
    pub fn push(&mut self, mut step: u64) {
        if self.bytes.len() >= STEPS_LEN_MAX {
            self.cut = true;
            return;
        }
        while step >= 0x80 {
            self.bytes.push((step & 0x7F) as u8 | 0x80);
            step >>= 7;
        }
        self.bytes.push(step as u8);
    }

    /// Whether the limit was reached, so that later steps are missing.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The versions, starting after `start`.
    pub fn versions(&self, start: u64) -> impl Iterator<Item = u64> + '_ {
        let mut bytes = self.bytes.iter();
        let mut version = start;
        std::iter::from_fn(move || {
            let mut step: u64 = 0;
            for shift in (0..64).step_by(7) {
                let byte = *bytes.next()?;
                step |= u64::from(byte & 0x7F) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            version = version.wrapping_add(step);
            Some(version)
        })
    }
}
