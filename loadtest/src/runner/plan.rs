//! The runs of a scenario file: servers times sizes, scaled.

use std::time::Duration;

use super::arguments;
use super::scenario_file::{Owner, ScenarioFile, ServerKind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlan {
    pub label: String,
    /// Value of the swept flag.
    pub size: Option<String>,
    pub server: ServerKind,
    pub tiers: usize,
    /// The scenario with its flags.
    pub play: Vec<String>,
    /// Flags of the embedded API server.
    pub apiserver: Vec<String>,
    pub gateway: Vec<String>,
    /// Most open files of each gateway.
    pub gateway_files: Option<u32>,
    /// Longest time of the scenario.
    pub limit: Duration,
}

impl RunPlan {
    /// Its label with its size.
    pub fn name(&self) -> String {
        self.size.as_ref().map_or_else(
            || self.label.clone(),
            |size| format!("{} at {size}", self.label),
        )
    }
}

/// All runs of a scenario file. Sizes are the outer loop, so that the servers of one size run close together. `only` names labels or
/// servers; empty means all.
pub fn plan(scenario: &ScenarioFile, scale: f64, only: &[String]) -> Vec<RunPlan> {
    let mut planned = Vec::new();
    for size in sizes(scenario, scale) {
        for servers in &scenario.runs {
            let (label, server) = (servers.label(), servers.server);
            if !only.is_empty()
                && !only
                    .iter()
                    .any(|name| name == label || name == server.name())
            {
                continue;
            }
            let mut run = RunPlan {
                label: label.to_owned(),
                size: size.clone(),
                server,
                tiers: servers.tiers,
                play: scenario.play.clone(),
                apiserver: scenario.apiserver.clone(),
                gateway: scenario.gateway.clone(),
                gateway_files: servers.gateway_files,
                limit: scenario.limit,
            };
            arguments::add(&mut run.play, &servers.play);
            arguments::add(&mut run.gateway, &servers.gateway);
            shrink(&mut run.play, &scenario.scaled, scale);
            if let Some((sweep, size)) = scenario.sweep.as_ref().zip(size.as_ref()) {
                let words = match sweep.of {
                    Owner::Play => &mut run.play,
                    Owner::Apiserver => &mut run.apiserver,
                    Owner::Gateway => &mut run.gateway,
                };
                arguments::set(words, &sweep.flag, size);
            }
            planned.push(run);
        }
    }
    planned
}

/// The values of the sweep, scaled if its flag is; one run without a size if there is no sweep.
fn sizes(scenario: &ScenarioFile, scale: f64) -> Vec<Option<String>> {
    let Some(sweep) = &scenario.sweep else {
        return vec![None];
    };
    let is_scaled = scale != 1.0 && scenario.scaled.contains(&sweep.flag);
    let value = |value: &String| {
        Some(if is_scaled {
            arguments::scale(value, scale)
        } else {
            value.clone()
        })
    };
    let mut sizes: Vec<_> = sweep.values.iter().map(value).collect();
    sizes.dedup();
    sizes
}

fn shrink(play: &mut Vec<String>, flags: &[String], scale: f64) {
    if scale == 1.0 {
        return;
    }
    for flag in flags {
        if let Some(value) = arguments::value(play, flag) {
            let value = arguments::scale(value, scale);
            arguments::set(play, flag, &value);
        }
    }
}
