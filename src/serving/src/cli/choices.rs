//! Values of flags that are one of a few words.

use clap::ValueEnum;
use serde::Serialize;

/// How callers are authenticated and authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMode {
    /// TokenReview and SubjectAccessReview upstream, under the gateway's identity
    Review,
    /// SelfSubjectReview and SelfSubjectAccessReview upstream, with the caller's own credentials
    SelfCheck,
    /// TokenReview upstream; the gateway decides access by the roles and bindings that it lists and watches
    Rbac,
    /// No authentication: every client that can connect has the gateway's rights
    None,
}

/// What else than RBAC and the node authorizer decides upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamAuthorizers {
    /// The gateway finds out
    Auto,
    /// Something that upstream's reviews of rules do not show
    Opaque,
}

/// Which watches are compressed, of those whose clients accept gzip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompressWatches {
    /// All but those of Secrets, and of clients that seem to read gzip late or not at all
    Auto,
    /// None
    Never,
    /// All
    Always,
}

/// How requests are authorized; the values are spelled like kube-apiserver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthorizationMode {
    /// Every user may do everything
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Roles and bindings
    #[value(name = "RBAC")]
    Rbac,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines of text, for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Levels of the log, most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Failures that an operator must act on.
    Error,
    /// Problems that an operator should look at.
    Warn,
    /// Changes of state.
    Info,
    /// Details of single requests.
    Debug,
    /// Everything.
    Trace,
}

/// Form of a command's answer on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Lines of text, for people.
    Text,
    /// One JSON document.
    Json,
}

/// The name of a choice as flags and configuration files write it; empty for a variant that clap skips.
#[must_use]
pub fn choice_name<T: ValueEnum>(choice: T) -> String {
    choice
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}
