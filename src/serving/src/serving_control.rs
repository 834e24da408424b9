//! Which side answers whom, memory or upstream: the serving rules in force, those that an operator puts in their place for a while, and
//! how open watches change sides (decision 61).
//!
//! Start with [`ServingControl`]. `subject` is what rules see of an open request, `side` is the watch's hold on its side,
//! and `side_end` what ends a watch that is forwarded.

mod control;
mod side;
mod side_end;
mod subject;

pub use control::{ServingControl, ServingState};
pub use side::SideHold;
pub use side_end::SideEnd;
pub use subject::{OwnedSubject, SubjectUser};

#[cfg(test)]
mod tests;
