//! Follows the files that the gateway reads; each kind of file has a task of its own. Another one logs what expires.

mod expiry;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::auth::authenticator::Authenticator;
use crate::config::AuthSettings;
use crate::metrics::{ByLabel, FileKind, FileMetrics, Metrics, TaskKind};
use crate::reload::{FileFault, FileHashes, FileSource, FileWatch, Folders, WatchedFiles};
use crate::task::restart_on_end;
use crate::tls::ServerIdentity;
use crate::upstream::client::Client;

/// Starts the tasks that follow files.
pub(super) struct Reloads {
    folders: Folders,
    metrics: FileMetrics,
    ends: ByLabel<TaskKind>,
}

impl Reloads {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            folders: Folders::default(),
            metrics: metrics.files(),
            ends: metrics.task_ends(),
        }
    }

    /// Follows the files of `source`. `applied` is their content when the source was created; without it they are read again once at the
    /// start.
    pub(super) fn follow<S: FileSource + 'static>(
        &self,
        tasks: &mut JoinSet<()>,
        kind: FileKind,
        source: S,
        applied: Option<FileHashes>,
    ) {
        let watch = FileWatch::new(kind, source, &self.folders, &self.metrics);
        let watch = match applied {
            Some(applied) => watch.with_applied(applied),
            None => watch,
        };
        let ends = self.ends.clone();
        tasks.spawn(async move {
            restart_on_end(TaskKind::FileReload, &ends, || watch.run()).await;
        });
    }

    /// Follows serving certificates, their keys, and the client authorities whose names handshakes send.
    pub(super) fn follow_tls(&self, tasks: &mut JoinSet<()>, tls: &Arc<ServerIdentity>) {
        let expiry = self.metrics.serving_certificate_expiry.clone();
        expiry.set(tls.expires_at().unwrap_or_default());
        let identity = Arc::clone(tls);
        let files = WatchedFiles::new(tls.certificate_files(), move || {
            let outcome = identity.reload_certificates();
            expiry.set(identity.expires_at().unwrap_or_default());
            Ok(outcome?)
        });
        self.follow(tasks, FileKind::ServingCertificate, files, None);
        let authorities = tls.authority_files();
        if !authorities.is_empty() {
            let identity = Arc::clone(tls);
            let files = WatchedFiles::new(authorities, move || Ok(identity.reload_authorities()?));
            self.follow(tasks, FileKind::ClientAuthorityHint, files, None);
        }
    }

    /// Logs certificates and credentials that have expired or are about to.
    pub(super) fn follow_expiry(&self, tasks: &mut JoinSet<()>) {
        let (metrics, ends) = (self.metrics.clone(), self.ends.clone());
        tasks.spawn(async move {
            restart_on_end(TaskKind::FileReload, &ends, || expiry::log(&metrics)).await;
        });
    }

    /// Follows the authorities of client certificates and of front proxies.
    pub(super) fn follow_authorities(
        &self,
        tasks: &mut JoinSet<()>,
        authenticator: &Arc<Authenticator>,
        settings: &AuthSettings,
    ) {
        if let Some(path) = settings.client_ca.clone() {
            let authenticator = Arc::clone(authenticator);
            let files = vec![path.clone()];
            let files =
                WatchedFiles::new(files, move || Ok(authenticator.reload_client_ca(&path)?));
            self.follow(tasks, FileKind::ClientAuthority, files, None);
        }
        if let Some(proxy) = &settings.front_proxy {
            let (authenticator, path) = (Arc::clone(authenticator), proxy.client_ca.clone());
            let files = vec![path.clone()];
            let files = WatchedFiles::new(files, move || {
                Ok(authenticator.reload_front_proxy_ca(&path)?)
            });
            self.follow(tasks, FileKind::FrontProxyAuthority, files, None);
        }
    }

    /// Follows kubeconfig, token and certificate files, and renews the credentials that an exec plugin has issued.
    pub(super) fn follow_upstream(&self, tasks: &mut JoinSet<()>, client: &Client) {
        let credentials = UpstreamCredentials {
            client: client.clone(),
            metrics: self.metrics.clone(),
        };
        credentials.show_expiry();
        // The plugin has just run; without `applied` it would run again at once.
        let is_issued = client.renewal_in().is_some();
        let applied = is_issued.then(|| FileHashes::of(&client.files()));
        self.follow(tasks, FileKind::UpstreamCredential, credentials, applied);
    }
}

struct UpstreamCredentials {
    client: Client,
    metrics: FileMetrics,
}

impl UpstreamCredentials {
    fn show_expiry(&self) {
        let expiry = &self.metrics.upstream_credential_expiry;
        expiry.set(self.client.expires_at().unwrap_or_default());
    }
}

impl FileSource for UpstreamCredentials {
    fn files(&self) -> Vec<PathBuf> {
        self.client.files()
    }

    async fn reload(&self) -> Result<(), FileFault> {
        let outcome = self.client.rebuild_in_time().await;
        self.show_expiry();
        Ok(outcome?)
    }

    fn due_in(&self) -> Option<Duration> {
        self.client.renewal_in()
    }
}
