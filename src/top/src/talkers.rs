//! The users and user agents that ask for most, as rows of tables.

use std::cmp::Reverse;

use crate::status::{StatusDocument, TalkerStatus};

use super::words::{bytes, separated};

/// Rows of a table.
const ROWS_MAX: usize = 12;

/// Users and user agents that ask for most, with the time that is counted.
#[derive(Clone, Debug, Default)]
pub(super) struct TalkerRows {
    pub(super) seconds: f64,
    pub(super) users: Vec<[String; 5]>,
    pub(super) agents: Vec<[String; 5]>,
}

impl TalkerRows {
    /// Those whose name `is_shown`, the most bytes first.
    pub(super) fn new(
        status: &StatusDocument,
        is_shown: impl Fn(&TalkerStatus) -> bool,
        name: fn(&str) -> String,
    ) -> Self {
        let rows = |talkers: &[TalkerStatus]| {
            let mut shown: Vec<_> = talkers.iter().filter(|one| is_shown(one)).collect();
            shown.sort_by_key(|one| Reverse((one.bytes, one.requests)));
            shown.truncate(ROWS_MAX);
            shown.into_iter().map(|one| row(one, name)).collect()
        };
        Self {
            seconds: status.talkers.seconds,
            users: rows(&status.talkers.users),
            agents: rows(&status.talkers.agents),
        }
    }
}

fn row(talker: &TalkerStatus, name: fn(&str) -> String) -> [String; 5] {
    [
        name(&talker.name),
        separated(talker.watches),
        separated(talker.requests),
        separated(talker.lists),
        bytes(talker.bytes as f64),
    ]
}
