//! Where the clients of a resource are, in words: groups that add up to all of its clients.

use crate::status::CursorSummary;

use super::words::{clients, separated};

/// How many clients, and what they are.
type Amount = (usize, &'static str);

/// All clients, the groups, and in brackets after a group the part of it that differs.
pub(super) fn client_groups(at: &CursorSummary) -> String {
    let future = (at.future, "waiting for a future version");
    let endangered = (at.endangered, "may be cut soon");
    let lost = (at.lost, "out of the history");
    let mut words = clients(at.watches);
    let groups: [(Amount, &[Amount]); 3] = [
        ((at.current, "up to date"), &[future]),
        ((at.behind, "less than 5 s behind"), &[]),
        ((at.slow, "slow"), &[endangered, lost]),
    ];
    for (group, parts) in groups {
        let (count, what) = group;
        if count == 0 {
            continue;
        }
        let is_all = count == at.watches && count > 1;
        words.push_str(", ");
        words.push_str(&if is_all {
            format!("all {what}")
        } else {
            text(group)
        });
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.copied().map(text).collect();
        if !parts.is_empty() {
            words.push_str(&format!(" ({})", parts.join(", ")));
        }
    }
    // They are behind or slow, and counted there.
    if at.initial > 0 {
        let what = "of them receiving initial events or catching up";
        words.push_str("; ");
        words.push_str(&text((at.initial, what)));
    }
    words
}

fn text((count, what): Amount) -> String {
    format!("{} {what}", separated(count))
}
