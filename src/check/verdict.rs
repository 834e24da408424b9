//! What a check found, in words that are safe to print.

use crate::printable::clean;

/// A message is one sentence; servers that are checked may quote more.
const MESSAGE_LEN_MAX: usize = 400;
/// A list of resources, for example. The rest is counted.
const DETAILS_MAX: usize = 20;
const DETAIL_LEN_MAX: usize = 200;

/// How a check ended, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckLevel {
    /// As it should be.
    Ok,
    /// It could not be made, or there is nothing to check.
    Skipped,
    /// The gateway works, but something will be missing, slow or insecure.
    Warning,
    /// The gateway will not work.
    Failure,
}

impl CheckLevel {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// What a check found. Text is cleaned and bounded here, whoever it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckVerdict {
    /// How it ended.
    pub level: CheckLevel,
    /// What was found, in a sentence; for a skipped check, why.
    pub message: String,
    /// What to do; empty if there is nothing to do.
    pub hint: String,
    /// What the message is about, one by one.
    pub details: Vec<String>,
}

impl CheckVerdict {
    pub(super) fn ok(message: impl AsRef<str>) -> Self {
        Self::new(CheckLevel::Ok, message.as_ref(), "")
    }

    pub(super) fn skipped(reason: impl AsRef<str>) -> Self {
        Self::new(CheckLevel::Skipped, reason.as_ref(), "")
    }

    pub(super) fn warning(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new(CheckLevel::Warning, message.as_ref(), hint.as_ref())
    }

    pub(super) fn failure(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new(CheckLevel::Failure, message.as_ref(), hint.as_ref())
    }

    fn new(level: CheckLevel, message: &str, hint: &str) -> Self {
        Self {
            level,
            message: bounded(message, MESSAGE_LEN_MAX),
            hint: bounded(hint, MESSAGE_LEN_MAX),
            details: Vec::new(),
        }
    }

    /// The same with details, of which the first ones are kept.
    pub(super) fn with_details<T: AsRef<str>>(
        mut self,
        details: impl IntoIterator<Item = T>,
    ) -> Self {
        let mut details = details.into_iter();
        let shown = details.by_ref().take(DETAILS_MAX);
        self.details = shown
            .map(|one| bounded(one.as_ref(), DETAIL_LEN_MAX))
            .collect();
        let rest = details.count();
        if rest > 0 {
            self.details.push(format!("and {rest} more"));
        }
        self
    }

    /// What several steps of a check have found: all that is as bad as the worst, with what to do about the first of these. Steps that
    /// were not made count only if none was.
    pub(super) fn worst_of(verdicts: impl IntoIterator<Item = Self>) -> Self {
        let badness = |verdict: &Self| match verdict.level {
            CheckLevel::Skipped => 0,
            CheckLevel::Ok => 1,
            CheckLevel::Warning => 2,
            CheckLevel::Failure => 3,
        };
        let mut verdicts: Vec<_> = verdicts.into_iter().collect();
        let worst = verdicts.iter().map(badness).max();
        verdicts.retain(|verdict| Some(badness(verdict)) == worst);
        let messages: Vec<_> = verdicts.iter().map(|one| one.message.as_str()).collect();
        let Some(first) = verdicts.first() else {
            return Self::skipped("there is nothing to check");
        };
        let details = verdicts.iter().flat_map(|one| &one.details);
        Self::new(first.level, &messages.join("; "), &first.hint).with_details(details)
    }

    /// Whether it says that something is wrong.
    pub(super) const fn is_failure(&self) -> bool {
        matches!(self.level, CheckLevel::Failure)
    }
}

/// The text on one line, without characters that a terminal would obey.
fn bounded(text: &str, len_max: usize) -> String {
    let line = text.replace(['\n', '\r', '\t'], " ");
    let mut cut: String = clean(line.trim()).chars().take(len_max).collect();
    if line.trim().chars().count() > len_max {
        cut.push('…');
    }
    cut
}
