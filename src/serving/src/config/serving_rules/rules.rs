//! The rules as they are written, and what cannot be meant.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::glob::Glob;
use super::percent;
use crate::cli::{Percentage, TimeSpan};
use crate::config::patterns::ResourcePattern;
/// Length of the text of all rules, in bytes.
pub const RULES_LEN_MAX: usize = 64 << 10;
/// Each request is compared with them in turn.
const RULES_MAX: usize = 64;
/// Patterns in all rules together: each may be compared with each group of a caller.
const PATTERNS_MAX: usize = 512;
/// Length of a rule's name and of its salt, in bytes: a name is a label of metrics.
const NAME_LEN_MAX: usize = 63;
/// The name under which requests are counted that `mode: passthrough` forwards.
pub const PASSTHROUGH: &str = "passthrough";
/// The same for `mode: shadow`.
const SHADOW: &str = "shadow";
/// A watch that ends within its first second makes client-go list again; an hour is longer than most watches last.
const SWITCH_OVER_SECONDS: RangeInclusive<u64> = 1..=3600;
/// 70,000 watches change sides at 1,600 a second.
const SWITCH_OVER: TimeSpan = TimeSpan(Duration::from_secs(45));

/// Rules cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRules(String);

/// Whose lists and watches memory answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ServingRules {
    pub(super) mode: ServingMode,
    #[serde(deserialize_with = "from_text")]
    switch_over: TimeSpan,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rules: Vec<ServingRule>,
}

/// Whether the rules apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ServingMode {
    /// The rules decide.
    #[default]
    Rules,
    /// Everything is forwarded.
    Passthrough,
    /// Everything is forwarded, and compared with what memory would have answered.
    Shadow,
}

/// What becomes of the clients that a rule matches and draws. The others are forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RuleMode {
    /// Memory answers.
    #[default]
    Memory,
    /// Upstream answers, and memory's answer is compared with it.
    Shadow,
}

impl RuleMode {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which requests are alike: all of them are answered by the same side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ShareBy {
    /// Those of a user from one address: one service account may be thousands of pods.
    #[default]
    Client,
    /// Those of a user.
    User,
}

/// One rule. A list that is absent matches everything; all lists that are there must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ServingRule {
    /// The name in metrics; by default the number of the rule, from 1.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) users: Option<Vec<Glob>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) groups: Option<Vec<Glob>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agents: Option<Vec<Glob>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) resources: Option<Vec<ResourcePattern>>,
    #[serde(default, skip_serializing_if = "RuleMode::is_default")]
    pub(super) mode: RuleMode,
    /// How many of the clients that the rule matches are answered from memory, or compared; the others are forwarded.
    #[serde(default = "all", with = "percent")]
    pub(super) percent: Percentage,
    #[serde(default)]
    pub(super) by: ShareBy,
    /// Draws other clients for the same percentage.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) salt: String,
}

const fn all() -> Percentage {
    Percentage(1_000_000)
}

impl Default for ServingRules {
    fn default() -> Self {
        Self {
            mode: ServingMode::default(),
            switch_over: SWITCH_OVER,
            rules: Vec::new(),
        }
    }
}

impl ServingRules {
    /// In what time open watches change sides when the rules change.
    #[must_use]
    pub const fn switch_over(&self) -> Duration {
        self.switch_over.0
    }

    /// Whether everything is forwarded.
    #[must_use]
    pub fn is_passthrough(&self) -> bool {
        self.mode == ServingMode::Passthrough
    }

    /// Whether anything is compared with memory.
    #[must_use]
    pub fn has_shadow(&self) -> bool {
        match self.mode {
            ServingMode::Rules => self.rules.iter().any(|rule| rule.mode == RuleMode::Shadow),
            ServingMode::Passthrough => false,
            ServingMode::Shadow => true,
        }
    }

    /// The names of the rules, in order; if everything is forwarded, only `passthrough` or `shadow`.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self.mode {
            ServingMode::Rules => self.rules.iter().map(|rule| &*rule.name).collect(),
            ServingMode::Passthrough => vec![PASSTHROUGH],
            ServingMode::Shadow => vec![SHADOW],
        }
    }

    /// Names the rules that have no name, and refuses what cannot be meant.
    fn check(mut self) -> Result<Self, InvalidRules> {
        let seconds = Duration::from_secs(*SWITCH_OVER_SECONDS.start())
            ..=Duration::from_secs(*SWITCH_OVER_SECONDS.end());
        if !seconds.contains(&self.switch_over.0) {
            return refuse("switchOver: write a time from 1s to 1h");
        }
        if self.rules.len() > RULES_MAX {
            return refuse(format!("there are more than {RULES_MAX} rules"));
        }
        for (index, rule) in self.rules.iter_mut().enumerate() {
            if rule.name.is_empty() {
                rule.name = (index + 1).to_string();
            }
        }
        let patterns: usize = self.rules.iter().map(ServingRule::pattern_count).sum();
        if patterns > PATTERNS_MAX {
            return refuse(format!("there are more than {PATTERNS_MAX} patterns"));
        }
        let mut names = BTreeSet::new();
        let mut all_before = None;
        for rule in &self.rules {
            let at = |reason: String| InvalidRules(format!("rule {}: {reason}", rule.name));
            rule.check().map_err(at)?;
            if let Some(before) = all_before {
                let reason = format!("never matches, because {before} matches every request");
                return Err(at(reason));
            }
            if let name @ (PASSTHROUGH | SHADOW) = &*rule.name {
                return Err(at(format!("this is the name of what mode: {name} counts")));
            }
            if !names.insert(&rule.name) {
                return Err(at("another rule has this name".to_owned()));
            }
            if rule.matches_everything() {
                all_before = Some(&rule.name);
            }
        }
        Ok(self)
    }
}

impl ServingRule {
    fn matches_everything(&self) -> bool {
        let is_all = |list: &Option<Vec<Glob>>| {
            list.as_ref()
                .is_none_or(|list| list.iter().any(Glob::is_all))
        };
        let are_resources_all = self
            .resources
            .as_ref()
            .is_none_or(|list| list.contains(&ResourcePattern::ALL));
        // A caller may be in no group.
        are_resources_all && self.groups.is_none() && is_all(&self.users) && is_all(&self.agents)
    }

    /// The lengths of the lists, by key; `None` for one that is absent.
    fn lengths(&self) -> [(&'static str, Option<usize>); 4] {
        let len = |list: &Option<Vec<Glob>>| list.as_ref().map(Vec::len);
        [
            ("users", len(&self.users)),
            ("groups", len(&self.groups)),
            ("agents", len(&self.agents)),
            ("resources", self.resources.as_ref().map(Vec::len)),
        ]
    }

    fn pattern_count(&self) -> usize {
        self.lengths().into_iter().filter_map(|(_, len)| len).sum()
    }

    fn check(&self) -> Result<(), String> {
        let is_word = |text: &str| {
            text.len() <= NAME_LEN_MAX
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !is_word(&self.name) || !is_word(&self.salt) {
            return Err(format!(
                "name and salt have at most {NAME_LEN_MAX} letters, digits, -, _ and ."
            ));
        }
        let empty = self.lengths().into_iter().find(|(_, len)| *len == Some(0));
        if let Some((key, _)) = empty {
            return Err(format!(
                "{key}: an empty list matches nothing; leave it out to match everything"
            ));
        }
        Ok(())
    }
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TimeSpan, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, InvalidRules> {
    Err(InvalidRules(reason.into()))
}

impl FromStr for ServingRules {
    type Err = InvalidRules;

    /// Reads YAML, which includes JSON. A single word is a mode.
    fn from_str(text: &str) -> Result<Self, InvalidRules> {
        if text.len() > RULES_LEN_MAX {
            return refuse(format!("longer than {RULES_LEN_MAX} bytes"));
        }
        let text = match text.trim() {
            mode @ ("rules" | PASSTHROUGH | SHADOW) => format!("mode: {mode}"),
            text => text.to_owned(),
        };
        let rules = serde_saphyr::from_str::<Self>(&text).map_err(|error| {
            let message = error.without_snippet().to_string();
            InvalidRules(message.lines().next().unwrap_or("not YAML").to_owned())
        })?;
        rules.check()
    }
}

impl fmt::Display for ServingRules {
    /// Writes JSON, which [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}
