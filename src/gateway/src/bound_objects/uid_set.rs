//! A set of uids in little memory: 150,000 take less than 5 MB. Holds nothing else of their objects.

use std::fmt;

use hashbrown::HashSet;

/// Uids that a set holds. No cluster has as many pods; a peer that sends more is not followed.
const UIDS_MAX: usize = 1 << 20;
/// Uids in another form than kube-apiserver's, which take more memory. Bytes of one of them.
const OTHER_LEN_MAX: usize = 64;

/// Uids. It may be [incomplete](Self::is_complete).
#[derive(Default)]
pub(super) struct UidSet {
    canonical: HashSet<u128>,
    others: HashSet<Box<str>>,
    has_overflowed: bool,
}

impl UidSet {
    /// Adds a uid, if there is room.
    pub(super) fn insert(&mut self, uid: &str) {
        let canonical = canonical(uid);
        if self.contains(uid) {
            return;
        }
        if self.len() == UIDS_MAX || (canonical.is_none() && uid.len() > OTHER_LEN_MAX) {
            self.has_overflowed = true;
            return;
        }
        match canonical {
            Some(number) => self.canonical.insert(number),
            None => self.others.insert(uid.into()),
        };
    }

    /// Removes a uid, and returns whether the set had it.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        match canonical(uid) {
            Some(number) => self.canonical.remove(&number),
            None => self.others.remove(uid),
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        match canonical(uid) {
            Some(number) => self.canonical.contains(&number),
            None => self.others.contains(uid),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.canonical.len() + self.others.len()
    }

    /// Whether there was room for all uids.
    pub(super) const fn is_complete(&self) -> bool {
        !self.has_overflowed
    }
}

impl fmt::Debug for UidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UidSet")
            .field("len", &self.len())
            .field("has_overflowed", &self.has_overflowed)
            .finish_non_exhaustive()
    }
}

/// The number that a uid in kube-apiserver's form stands for; `None` for any other form, in which two uids might have the same number.
fn canonical(uid: &str) -> Option<u128> {
    if uid.len() != 36 {
        return None;
    }
    let mut number = 0_u128;
    for (index, byte) in uid.bytes().enumerate() {
        let digit = match (index, byte) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            _ => return None,
        };
        number = number << 4 | u128::from(digit);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_inserted() {
        for uid in [
            "00000000-0000-0000-0000-000000000000",
            "0b5f2d2e-9c3a-4d1e-8f70-00a1b2c3d4e5",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            // Not in kube-apiserver's form, but still uids.
            "0B5F2D2E-9C3A-4D1E-8F70-00A1B2C3D4E5",
            "0b5f2d2e9-c3a-4d1e-8f70-00a1b2c3d4e5",
            "0b5f2d2e-9c3a-4d1e-8f70-00a1b2c3d4eé",
            "a-mirror-pod",
            "",
        ] {
            let mut set = UidSet::default();
            assert!(!set.contains(uid));
            set.insert(uid);
            set.insert(uid);
            assert_eq!((set.contains(uid), set.len()), (true, 1), "{uid}");
            assert!(set.remove(uid) && !set.remove(uid), "{uid}");
            assert!(set.is_complete());
        }
    }

    #[test]
    fn a_set_that_had_no_room_says_so() {
        let mut set = UidSet::default();
        set.insert(&"x".repeat(OTHER_LEN_MAX));
        assert!(set.is_complete());
        set.insert(&"x".repeat(OTHER_LEN_MAX + 1));
        assert_eq!((set.is_complete(), set.len()), (false, 1));

        let mut set = UidSet::default();
        set.canonical.extend(1..UIDS_MAX as u128);
        let zero = "00000000-0000-0000-0000-000000000000";
        set.insert(zero);
        set.insert(zero);
        assert!(set.is_complete());
        set.insert("one-more");
        assert_eq!((set.is_complete(), set.len()), (false, UIDS_MAX));
    }
}
