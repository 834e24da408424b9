//! Which log lines are written: a filter by level and module, which can change while the process runs (decision 56).
//!
//! ```text
//! info,kube_fanout::upstream=debug,hyper=warn
//! ```
//!
//! Start with [`LogFilter`]; [`LogControl`] holds the filter in force, and who may change it.

mod control;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use tracing::level_filters::LevelFilter;

pub use control::{FilterState, LogControl};

#[cfg(test)]
mod tests;

/// A filter of some modules has some hundred bytes.
pub const FILTER_LEN_MAX: usize = 4096;
/// Each new place in the code that logs is compared with all of them, once.
const DIRECTIVES_MAX: usize = 64;
/// An error message repeats at most so many characters of what it refuses.
const QUOTE_MAX: usize = 80;

/// A text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFilter {
    /// More than 4096 bytes.
    #[error("a filter has at most {FILTER_LEN_MAX} bytes")]
    TooLong,
    /// More than 64 directives.
    #[error("a filter has at most {DIRECTIVES_MAX} directives")]
    TooMany,
    /// Neither a level nor a module with a level.
    #[error(
        "{0:?} is neither a level nor module=level: write info,kube_fanout::upstream=debug; the levels are off, error, warn, info, debug and trace"
    )]
    Directive(String),
    /// Two levels for the same module, or for all other modules.
    #[error("{0} has two levels")]
    Repeated(String),
}

/// The least severe level of each module, and of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// The level of all modules without one of their own; `None` if the filter does not say.
    rest: Option<LevelFilter>,
    modules: Vec<(String, LevelFilter)>,
}

impl LogFilter {
    /// One level for everything.
    #[must_use]
    pub const fn of_level(level: LevelFilter) -> Self {
        Self {
            rest: Some(level),
            modules: Vec::new(),
        }
    }

    /// The same filter; if it says nothing about modules without a level of their own, they get this one.
    #[must_use]
    pub fn or_level(mut self, level: LevelFilter) -> Self {
        self.rest.get_or_insert(level);
        self
    }

    /// This filter over another one. If it has a level for all modules it replaces the other; otherwise it only changes the modules that
    /// it names, and those below them.
    #[must_use]
    pub fn over(mut self, other: &Self) -> Self {
        if self.rest.is_some() {
            return self;
        }
        self.rest = Some(other.rest());
        let is_named = |module: &str| {
            self.modules.iter().any(|(named, _)| {
                let below = module.strip_prefix(named.as_str());
                below.is_some_and(|below| below.is_empty() || below.starts_with("::"))
            })
        };
        let kept = other.modules.iter().filter(|(module, _)| !is_named(module));
        let kept: Vec<_> = kept.cloned().collect();
        self.modules.extend(kept);
        self
    }

    /// The level of all modules without one of their own.
    #[must_use]
    pub fn rest(&self) -> LevelFilter {
        self.rest.unwrap_or(LevelFilter::OFF)
    }

    /// The modules with levels of their own. A module's level is that of the modules below it, too, unless they have one.
    #[must_use]
    pub fn modules(&self) -> &[(String, LevelFilter)] {
        &self.modules
    }
}

impl FromStr for LogFilter {
    type Err = InvalidFilter;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > FILTER_LEN_MAX {
            return Err(InvalidFilter::TooLong);
        }
        let mut filter = Self {
            rest: None,
            modules: Vec::new(),
        };
        for (index, directive) in text.split(',').map(str::trim).enumerate() {
            if index == DIRECTIVES_MAX {
                return Err(InvalidFilter::TooMany);
            }
            let invalid = || InvalidFilter::Directive(directive.chars().take(QUOTE_MAX).collect());
            let (module, level) = match directive.rsplit_once('=') {
                Some((module, level)) => (Some(module.trim_end()), level.trim_start()),
                None => (None, directive),
            };
            let level = level_of(level).ok_or_else(invalid)?;
            match module {
                Some(module) if !is_module(module) => return Err(invalid()),
                Some(module) => {
                    let module = of_one_crate(module);
                    if filter.modules.iter().any(|(known, _)| *known == module) {
                        return Err(InvalidFilter::Repeated(module));
                    }
                    filter.modules.push((module, level));
                }
                None if filter.rest.is_some() => {
                    return Err(InvalidFilter::Repeated("everything".to_owned()));
                }
                None => filter.rest = Some(level),
            }
        }
        Ok(filter)
    }
}

/// Log lines name crates, filters the modules of one crate: `kube_fanout_upstream::client` is `kube_fanout::upstream::client`,
/// `kube_fanout_serving::serve` is `kube_fanout::serve`.
fn of_one_crate(module: &str) -> String {
    let room = module.strip_prefix("kube_fanout_serving::");
    match room.or_else(|| module.strip_prefix("kube_fanout_")) {
        Some(rest) => format!("kube_fanout::{rest}"),
        None => module.to_owned(),
    }
}

impl Serialize for LogFilter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(rest) = self.rest {
            write!(f, "{rest}")?;
            separator = ",";
        }
        for (module, level) in &self.modules {
            write!(f, "{separator}{module}={level}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// The level of this name; `LevelFilter` would take a number and nothing as well.
fn level_of(name: &str) -> Option<LevelFilter> {
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    name.parse().ok().filter(|_| is_word)
}

/// Whether this is the path of a Rust module, or the name of a crate. Log lines of no other names exist.
fn is_module(text: &str) -> bool {
    let is_word = |word: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        !word.is_empty() && word.bytes().all(is_letter)
    };
    text.split("::").all(is_word)
}
