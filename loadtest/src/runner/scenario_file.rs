//! Scenario files: scenario, servers and figures. README.md documents every key.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::arguments;
use crate::report::ScenarioReport;
use crate::report::target::{BETWEEN, FigureTarget};

/// Longest time of a scenario unless the file has a limit.
const LIMIT: Duration = Duration::from_secs(300);
const TIERS_MAX: usize = 8;
/// Stands for every run in a target's `of`.
const EACH: &str = "each";

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// The file's name without its extension.
    #[serde(skip)]
    pub name: String,
    pub about: String,
    /// The scenario: a subcommand and its flags.
    #[serde(deserialize_with = "words")]
    pub play: Vec<String>,
    /// The servers to run it against.
    pub runs: Vec<RunServers>,
    /// Flags of the embedded API server.
    #[serde(default, deserialize_with = "words")]
    pub apiserver: Vec<String>,
    #[serde(default, deserialize_with = "words")]
    pub gateway: Vec<String>,
    /// A flag with several values.
    #[serde(default)]
    pub sweep: Option<Sweep>,
    /// Flags of the scenario that `--scale` multiplies.
    #[serde(default)]
    pub scaled: Vec<String>,
    /// Longest time of the scenario in one run.
    #[serde(default = "default_limit", deserialize_with = "limit")]
    pub limit: Duration,
    /// Figures to show first and to draw.
    #[serde(default)]
    pub show: Vec<String>,
    #[serde(default)]
    pub targets: Vec<FigureTarget>,
}

fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(arguments::split(&String::deserialize(deserializer)?))
}

const fn default_limit() -> Duration {
    LIMIT
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let error = |error| D::Error::custom(format!("limit: {error}"));
    crate::cli::seconds(&text).map_err(error)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    Embedded,
    /// The same with TLS.
    EmbeddedTls,
    /// A gateway before it, plain HTTP.
    Gateway,
    /// The same with TLS towards clients.
    GatewayTls,
    Real,
    /// A gateway before that, TLS on both sides.
    GatewayReal,
    /// The same, plain HTTP towards clients.
    GatewayRealPlain,
}

/// The servers of one run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunServers {
    pub server: ServerKind,
    /// Label of the run, if it differs from the server's name.
    #[serde(default)]
    label: Option<String>,
    /// More flags of the scenario.
    #[serde(default, deserialize_with = "words")]
    pub play: Vec<String>,
    #[serde(default, deserialize_with = "words")]
    pub gateway: Vec<String>,
    /// Most open files of each gateway, if it differs from the runner's limit.
    #[serde(default)]
    pub gateway_files: Option<u32>,
    #[serde(default = "one")]
    pub tiers: usize,
}

/// A flag with several values, one run for each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    #[serde(default)]
    pub of: Owner,
    pub flag: String,
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    #[default]
    Play,
    Apiserver,
    Gateway,
}

const fn one() -> usize {
    1
}

impl ServerKind {
    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::EmbeddedTls => "embedded-tls",
            Self::Gateway => "gateway",
            Self::GatewayTls => "gateway-tls",
            Self::Real => "real",
            Self::GatewayReal => "gateway-real",
            Self::GatewayRealPlain => "gateway-real-plain",
        }
    }

    /// Whether a gateway is in front of the API server.
    pub const fn has_gateway(self) -> bool {
        !matches!(self, Self::Embedded | Self::EmbeddedTls | Self::Real)
    }
}

impl RunServers {
    /// The label of the run.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(self.server.name())
    }
}

impl ScenarioFile {
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Self::parse(file, &text)
    }

    /// Like [`Self::read`], given the text.
    pub fn parse(file: &Path, text: &str) -> anyhow::Result<Self> {
        let mut parsed: Self = serde_saphyr::from_str(text).map_err(|error| {
            let message = error.without_snippet().to_string();
            let line = error.location().map_or(1, |location| location.line());
            anyhow::anyhow!(
                "{}:{line}: {}",
                file.display(),
                message.lines().next().unwrap_or("not YAML")
            )
        })?;
        parsed.expand();
        parsed.check().with_context(|| file.display().to_string())?;
        let name = file.file_stem().unwrap_or_default();
        parsed.name = name.to_string_lossy().into_owned();
        Ok(parsed)
    }

    /// A target of [`EACH`] stands for one of each run.
    fn expand(&mut self) {
        let (each, mut targets): (Vec<_>, Vec<_>) =
            self.targets.drain(..).partition(|target| target.of == EACH);
        for run in &self.runs {
            targets.extend(each.iter().map(|target| FigureTarget {
                what: format!("{}: {}", run.label(), target.what),
                of: run.label().to_owned(),
                ..target.clone()
            }));
        }
        self.targets = targets;
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.play.is_empty(), "play: no scenario");
        ensure!(!self.runs.is_empty(), "runs: none");
        let mut labels: Vec<&str> = Vec::new();
        for run in &self.runs {
            let (label, tiers) = (run.label(), run.tiers);
            let is_alone = !run.server.has_gateway();
            ensure!(!labels.contains(&label), "runs: two are called {label}");
            ensure!(
                (1..=TIERS_MAX).contains(&tiers),
                "{label}: tiers: 1 to {TIERS_MAX}"
            );
            ensure!(!is_alone || tiers == 1, "{label}: tiers without a gateway");
            ensure!(
                !is_alone || run.gateway_files.is_none(),
                "{label}: gateway-files without a gateway"
            );
            labels.push(label);
        }
        for place in self
            .targets
            .iter()
            .flat_map(|target| [Some(&target.of), target.to.as_ref(), target.less.as_ref()])
            .flatten()
        {
            let label = place.split(BETWEEN).next().unwrap_or_default();
            ensure!(labels.contains(&label), "{place}: no run is called {label}");
        }
        let is_empty = |sweep: &Sweep| sweep.values.is_empty();
        ensure!(
            !self.sweep.as_ref().is_some_and(is_empty),
            "sweep: no values"
        );
        Ok(())
    }

    /// The scenario's report before any run.
    pub fn heading(&self, scale: f64) -> ScenarioReport {
        ScenarioReport {
            name: self.name.clone(),
            about: self.about.clone(),
            command: format!(
                "kube-fanout-loadtest run loadtest/scenarios/{}.yaml",
                self.name
            ),
            scale,
            swept: self.sweep.as_ref().map(|sweep| sweep.flag.clone()),
            show: self.show.clone(),
            targets: self.targets.clone(),
            runs: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
