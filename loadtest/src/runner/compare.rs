//! `compare`: runs a scenario directly and through a gateway, and writes one page that shows both side by side.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use super::Runner;
use crate::cli::GatewayFlags;
use crate::command::Subcommand;
use crate::report::{Report, side_by_side};

/// Runs a scenario at the API server and through a gateway, and writes one page that shows both side by side.
#[derive(Debug, Clone, Parser)]
#[command(name = "compare")]
pub struct Compare {
    /// The page to write; its figures are written beside it, as FILE.json.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Scenario file.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "loadtest/scenarios/kubelets.yaml"
    )]
    pub scenario: PathBuf,
    /// The two runs: the API server alone, and the one behind a gateway.
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "ALONE,THROUGH", default_values_t = ["embedded-tls".to_owned(), "gateway-tls".to_owned()])]
    pub runs: Vec<String>,
    /// Show an earlier run from its JSON instead.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Factor on counts and times of the scenario.
    #[arg(long, default_value_t = 1.0, value_parser = super::factor)]
    pub scale: f64,
    #[command(flatten)]
    pub gateway: GatewayFlags,
    /// Script that starts a real API server.
    #[arg(long, default_value = "tests/real/apiserver/real-apiserver.sh")]
    pub real_apiserver: PathBuf,
}

impl Subcommand for Compare {
    /// True if both runs passed.
    fn execute(&self) -> Result<bool> {
        let mut report = match &self.from {
            Some(file) => Report::read(file)?,
            None => self.runner().report()?,
        };
        for scenario in &mut report.scenarios {
            let wanted = |label: &str| self.runs.iter().position(|run| run == label);
            scenario.runs.retain(|run| wanted(&run.label).is_some());
            scenario.runs.sort_by_key(|run| wanted(&run.label));
        }
        if self.from.is_none() {
            report.write(&self.out.with_extension("json"))?;
        }
        let page = side_by_side::page(&report)?;
        std::fs::write(&self.out, page).with_context(|| self.out.display().to_string())?;
        super::note(&format!("page: {}\n", self.out.display()));
        Ok(report.passed())
    }
}

impl Compare {
    fn runner(&self) -> Runner {
        Runner {
            files: vec![self.scenario.clone()],
            only: self.runs.clone(),
            repeat: 1,
            report: None,
            scale: self.scale,
            gateway: self.gateway.clone(),
            real_apiserver: self.real_apiserver.clone(),
        }
    }
}
