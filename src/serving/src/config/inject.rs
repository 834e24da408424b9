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
            task: task(flags.action, flags.percent)?,
        })
    }
}

fn task(action: InjectAction, percent: Option<u8>) -> Result<InjectTask, SettingsError> {
    match (action, percent) {
        (InjectAction::Percent, Some(percent)) => Ok(InjectTask::Percent(percent)),
        (InjectAction::Percent, None) => Err(SettingsError::Percent),
        (_, Some(_)) => Err(SettingsError::PercentAlone),
        (InjectAction::Status, None) => Ok(InjectTask::Status),
        (InjectAction::Off, None) => Ok(InjectTask::Off),
        (InjectAction::On, None) => Ok(InjectTask::On),
        (InjectAction::Publish, None) => Ok(InjectTask::Publish),
    }
}
