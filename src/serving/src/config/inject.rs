//! Settings of `inject`.

use super::serve::parse_url;
use super::serve_settings::UpstreamSource;
use super::settings_error::SettingsError;
use crate::cli::{InjectAction, InjectFlags};
use crate::resource::names::is_dns_label;

/// Settings of `inject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectSettings {
    /// The API server and the credentials for it.
    pub upstream: UpstreamSource,
    /// The namespace of the gateways.
    pub namespace: String,
    /// What is done.
    pub task: InjectTask,
}

/// What `inject` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectTask {
    /// Report.
    Status,
    /// Inject this many of 100 new pods.
    Percent(u8),
    /// All clients to the API servers.
    Off,
    /// Clients to gateways again.
    On,
    /// Keep addresses up to date until the drain.
    Publish,
}

impl InjectSettings {
    pub(super) fn resolve(flags: InjectFlags) -> Result<Self, SettingsError> {
        let url = flags.upstream.as_deref();
        let url = url.map(|url| parse_url("upstream", url)).transpose()?;
        if flags.context.is_some() && flags.kubeconfig.is_none() {
            return Err(SettingsError::ContextAlone);
        }
        let upstream = match (flags.kubeconfig, flags.in_cluster, url) {
            (Some(path), false, None) => UpstreamSource::Kubeconfig {
                path,
                context: flags.context,
            },
            (None, true, None) => UpstreamSource::InCluster,
            (None, false, Some(url)) => UpstreamSource::Url(url),
            _ => return Err(SettingsError::Upstream),
        };
        // It becomes a part of paths.
        if !is_dns_label(&flags.namespace) {
            return Err(SettingsError::Value {
                flag: "namespace",
                given: flags.namespace,
                reason: "not a name of a namespace".to_owned(),
            });
        }
        Ok(Self {
            upstream,
            namespace: flags.namespace,
            task: task(flags.action, flags.percent.as_deref())?,
        })
    }
}

/// A percentage as the policy of `deploy/inject` reads it: a whole number from 0 to 100, without a sign or zeros before it.
#[must_use]
pub fn inject_percent(text: &str) -> Option<u8> {
    let percent = text.parse::<u8>().ok();
    percent.filter(|percent| *percent <= 100 && percent.to_string() == text)
}

fn task(action: InjectAction, percent: Option<&str>) -> Result<InjectTask, SettingsError> {
    match (action, percent) {
        (InjectAction::Percent, Some(text)) => match inject_percent(text) {
            Some(percent) => Ok(InjectTask::Percent(percent)),
            None => Err(SettingsError::Percent),
        },
        (InjectAction::Percent, None) => Err(SettingsError::Percent),
        (_, Some(_)) => Err(SettingsError::PercentAlone),
        (InjectAction::Status, None) => Ok(InjectTask::Status),
        (InjectAction::Off, None) => Ok(InjectTask::Off),
        (InjectAction::On, None) => Ok(InjectTask::On),
        (InjectAction::Publish, None) => Ok(InjectTask::Publish),
    }
}
