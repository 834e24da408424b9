//! Scenario files: scenario, servers and figures. README.md documents every key.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::arguments;
use crate::report::ScenarioReport;
use crate::report::target::{Comparison, FigureTarget};

/// The longest scenario file has 2 KB; a wrong path to a huge file must not fill the memory.
const FILE_LEN_MAX: u64 = 1 << 20;
/// Longest time of a scenario unless the file has a limit.
const LIMIT: Duration = Duration::from_secs(300);
/// Most chained gateways.
const TIERS_MAX: usize = 8;

/// A checked scenario file.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioFile {
    /// The file's name without its extension.
    pub name: String,
    /// Description.
    pub about: String,
    /// The scenario: a subcommand and its flags.
    pub play: Vec<String>,
    /// The servers to run it against.
    pub runs: Vec<RunServers>,
    /// Flags of the embedded API server.
    pub apiserver: Vec<String>,
    /// Flags of gateways.
    pub gateway: Vec<String>,
    /// A flag with several values.
    pub sweep: Option<Sweep>,
    /// Flags of the scenario that `--scale` multiplies.
    pub scaled: Vec<String>,
    /// Longest time of the scenario in one run.
    pub limit: Duration,
    /// Figures to show first and to draw.
    pub show: Vec<String>,
    /// Ratios to compute.
    pub compare: Vec<Comparison>,
    /// Targets of figures.
    pub targets: Vec<FigureTarget>,
}

/// The server under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// The embedded API server.
    Embedded,
    /// A gateway before it, plain HTTP.
    Gateway,
    /// The same with TLS towards clients.
    GatewayTls,
    /// A real API server.
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
    /// The server under test.
    pub server: ServerKind,
    /// Label of the run, if it differs from the server's name.
    #[serde(default)]
    label: Option<String>,
    /// More flags of the scenario.
    #[serde(default)]
    play: String,
    /// More flags of gateways.
    #[serde(default)]
    gateway: String,
    /// Most open files of each gateway, if it differs from the runner's limit.
    #[serde(default)]
    pub gateway_files: Option<u32>,
    /// Number of chained gateways.
    #[serde(default = "one")]
    pub tiers: usize,
}

/// A flag with several values, one run for each.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Owner of the flag.
    #[serde(default)]
    pub of: Owner,
    /// The flag.
    pub flag: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Owner of a flag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The scenario.
    #[default]
    Play,
    /// The embedded API server.
    Apiserver,
    /// The gateways.
    Gateway,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioText {
    about: String,
    play: String,
    runs: Vec<RunServers>,
    #[serde(default)]
    apiserver: String,
    #[serde(default)]
    gateway: String,
    #[serde(default)]
    sweep: Option<Sweep>,
    #[serde(default)]
    scaled: Vec<String>,
    #[serde(default)]
    limit: Option<String>,
    #[serde(default)]
    show: Vec<String>,
    #[serde(default)]
    compare: Vec<Comparison>,
    #[serde(default)]
    targets: Vec<FigureTarget>,
}

const fn one() -> usize {
    1
}

impl ServerKind {
    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Gateway => "gateway",
            Self::GatewayTls => "gateway-tls",
            Self::Real => "real",
            Self::GatewayReal => "gateway-real",
            Self::GatewayRealPlain => "gateway-real-plain",
        }
    }

    /// Whether a gateway is in front of the API server.
    pub const fn has_gateway(self) -> bool {
        !matches!(self, Self::Embedded | Self::Real)
    }
}

impl RunServers {
    /// The label of the run.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(self.server.name())
    }

    /// More flags of the scenario.
    pub fn play(&self) -> Vec<String> {
        arguments::split(&self.play)
    }

    /// More flags of gateways.
    pub fn gateway(&self) -> Vec<String> {
        arguments::split(&self.gateway)
    }
}

impl ScenarioFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is not there or not a scenario file; the message has the line.
    pub fn read(file: &Path) -> Result<Self> {
        let mut text = String::new();
        std::fs::File::open(file)
            .and_then(|opened| opened.take(FILE_LEN_MAX).read_to_string(&mut text))
            .with_context(|| file.display().to_string())?;
        Self::parse(file, &text)
    }

    /// Like [`Self::read`], given the text.
    ///
    /// # Errors
    /// If it is not a scenario file.
    pub fn parse(file: &Path, text: &str) -> Result<Self> {
        let written: ScenarioText = serde_saphyr::from_str(text).map_err(|error| {
            let message = error.without_snippet().to_string();
            let line = error.location().map_or(1, |location| location.line());
            anyhow::anyhow!(
                "{}:{line}: {}",
                file.display(),
                message.lines().next().unwrap_or("not YAML")
            )
        })?;
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self::check(name, written).with_context(|| file.display().to_string())
    }

    fn check(name: String, written: ScenarioText) -> Result<Self> {
        let play = arguments::split(&written.play);
        ensure!(!play.is_empty(), "play: no scenario");
        ensure!(!written.runs.is_empty(), "runs: none");
        let mut labels: Vec<&str> = Vec::new();
        for run in &written.runs {
            ensure!(
                !labels.contains(&run.label()),
                "runs: two are called {}",
                run.label()
            );
            ensure!(
                (1..=TIERS_MAX).contains(&run.tiers),
                "{}: tiers: 1 to {TIERS_MAX}",
                run.label()
            );
            ensure!(
                run.server.has_gateway() || run.tiers == 1,
                "{}: tiers without a gateway",
                run.label()
            );
            ensure!(
                run.server.has_gateway() || run.gateway_files.is_none(),
                "{}: gateway-files without a gateway",
                run.label()
            );
            labels.push(run.label());
        }
        for place in written
            .targets
            .iter()
            .flat_map(|target| [Some(&target.of), target.to.as_ref(), target.less.as_ref()])
            .flatten()
            .chain(written.compare.iter().map(|comparison| &comparison.to))
        {
            let label = place.split(" / ").next().unwrap_or_default();
            ensure!(labels.contains(&label), "{place}: no run is called {label}");
        }
        if written
            .sweep
            .as_ref()
            .is_some_and(|sweep| sweep.values.is_empty())
        {
            bail!("sweep: no values");
        }
        let limit = written
            .limit
            .as_deref()
            .map_or(Ok(LIMIT), crate::cli::seconds);
        Ok(Self {
            name,
            play,
            about: written.about,
            runs: written.runs,
            apiserver: arguments::split(&written.apiserver),
            gateway: arguments::split(&written.gateway),
            sweep: written.sweep,
            scaled: written.scaled,
            limit: limit.map_err(|error| anyhow::anyhow!("limit: {error}"))?,
            show: written.show,
            compare: written.compare,
            targets: written.targets,
        })
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
            compare: self.compare.clone(),
            targets: self.targets.clone(),
            runs: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
