//! Composition root: builds the parts, wires them, owns every task.

mod audit_log;
mod callers;
mod consistency;
mod forwarded;
mod freshness;
mod hooks;
mod operators;
mod recorders;
mod registry;
mod reloads;
mod roles;
mod slot;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::admin::{self, AdminState};
use crate::admission::Admission;
use crate::audit::AuditError;
use crate::cache::Retention;
use crate::config::{AuthMode, ListenTransport, OpenFiles, ServeSettings, UpstreamSource};
use crate::connection::listener;
use crate::fairness::Users;
use crate::metrics::{Metrics, TaskKind};
use crate::passthrough::Passthrough;
use crate::serve::Service;
use crate::shutdown::Drain;
use crate::task::restart_on_end;
use crate::tls::{PairFiles, ServerIdentity, TlsError, TlsFiles};
use crate::upstream::client::{self, Client};
use crate::upstream::discovery::{Discovery, discover};
use audit_log::AuditLog;
use callers::Callers;
pub use callers::CallersError;
use hooks::Hooks;
use operators::OperatorLimits;
use registry::{Registry, RegistrySettings};
use reloads::Reloads;
use slot::ReadLimits;

/// Events in a segment of a resource's ring: the grain in which history is let go.
const SEGMENT_SLOTS: usize = 128;

/// The ports open after so long even if upstream has not told yet what it offers: a probe of liveness that finds no port takes
/// a gateway down that only waits.
const START_WAIT: Duration = Duration::from_secs(5);

/// A disk that writes the last audit events slower than this is not waited for.
const AUDIT_WRITE_TIME: Duration = Duration::from_secs(5);

/// The gateway cannot start. Each is one line for the terminal.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Callers cannot be told apart.
    #[error(transparent)]
    Callers(#[from] CallersError),
    /// The way upstream cannot be built.
    #[error("upstream")]
    Connect(#[from] client::ConnectError),
    /// A serving certificate, or an authority of clients, cannot be used.
    #[error("TLS")]
    Tls(#[from] TlsError),
    /// The address for clients cannot be opened.
    #[error("{flag} {address}")]
    Listen {
        /// What gave it.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The audit log cannot be begun.
    #[error("audit")]
    Audit(#[from] AuditError),
    /// The address for metrics cannot be opened.
    #[error(transparent)]
    Admin(#[from] admin::ListenError),
    /// Two metrics have one name.
    #[error("metrics")]
    Metrics(#[from] crate::metrics::MetricsError),
}

/// A gateway that is ready to run.
pub struct Gateway {
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    tls: Option<Arc<ServerIdentity>>,
    client: Client,
    listener: TcpListener,
    /// The port for operators, and what they may take.
    operators: Option<(TcpListener, Admission)>,
    admin: TcpListener,
    service: Service<Registry>,
    /// `None` does not tell callers apart.
    callers: Option<Callers>,
    audit_log: Option<AuditLog>,
}

/// Runs a gateway until its drain is over.
///
/// # Errors
/// See [`GatewayError`]: only at start. Afterwards nothing ends the gateway but its drain.
pub async fn run(settings: ServeSettings, drain: Drain) -> Result<(), GatewayError> {
    let gateway = Gateway::build(settings).await?;
    gateway.run(drain).await;
    Ok(())
}

impl Gateway {
    /// Reads credentials, opens ports, asks upstream what it has.
    ///
    /// # Errors
    /// See [`GatewayError`]. An upstream that does not answer is not one: the gateway goes on asking.
    pub async fn build(settings: ServeSettings) -> Result<Self, GatewayError> {
        Self::build_with(settings, Hooks::default()).await
    }

    async fn build_with(mut settings: ServeSettings, hooks: Hooks) -> Result<Self, GatewayError> {
        let tls = server_identity(&settings)?.map(Arc::new);
        let metrics = Arc::new(Metrics::new()?);
        let audit_log = AuditLog::start(settings.audit.as_ref(), &metrics)?;
        let client = Client::connect(source(&settings.upstream)).await?;
        let listener = operators::bind("--listen", settings.listen)?;
        let bind = |address| operators::bind("--operator-listen", address);
        let operators = settings.operator_listen.map(bind).transpose()?;
        let admin = admin::listen(settings.admin_listen).await?;
        let discovery = discovered_at_start(&client).await;
        let is_answering = discovery.is_some();
        let files = open_files(settings.admission.connections_max);
        let users = std::mem::take(&mut settings.exempt);
        let users = Users::new(users.users, users.groups);
        let callers = callers::callers(&settings.auth, &client, &metrics, users.clone())?;
        callers::report(&settings.auth);
        let identity = callers::forwarding_identity(settings.auth.mode);
        operators::set_apart(&mut settings);
        let passthrough = || {
            Passthrough::new(client.clone(), identity, metrics.passthrough())
                .hiding(callers::proxy_headers(&settings.auth))
        };
        let places = operators.is_some().then(|| OperatorLimits {
            admission: operators::admission(settings.admission, &metrics),
            passthrough: operators::bounded(passthrough()),
        });
        let operators = operators.zip(places.as_ref().map(|places| places.admission.clone()));
        let passthrough = passthrough().bounded(settings.forwards, files);
        let admission = Admission::new(settings.admission, Some(metrics.admission()));
        let registry = Registry::new(
            registry_settings(settings, admission.clone(), hooks),
            client.clone(),
            passthrough,
            Arc::clone(&metrics),
            discovery,
        );
        let registry = Arc::new(registry.with_operators(places));
        if is_answering {
            // What is not learnt now is learnt when discovery is read again.
            let _ = tokio::time::timeout(START_WAIT, registry.learn_gates()).await;
        }
        let service = Service::new(Arc::clone(&registry)).bounded(admission);
        let service = match &callers {
            Some(callers) => service.guarded(callers.guard.clone()).shared_among(users),
            None => service,
        };
        Ok(Self {
            registry,
            metrics,
            tls,
            client,
            listener,
            operators,
            admin,
            service,
            callers,
            audit_log,
        })
    }

    /// The address that clients reach.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The address that operators reach, if there is one.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn operator_address(&self) -> std::io::Result<Option<SocketAddr>> {
        let operators = self.operators.as_ref();
        operators.map(|(port, _)| port.local_addr()).transpose()
    }

    /// The address of metrics and health.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn admin_address(&self) -> std::io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until the drain is over.
    pub async fn run(self, drain: Drain) {
        let Self {
            registry,
            metrics,
            tls,
            client,
            listener,
            operators,
            admin,
            service,
            callers,
            audit_log,
        } = self;
        if let (Ok(address), Ok(admin)) = (listener.local_addr(), admin.local_addr()) {
            info!(%address, %admin, tls = tls.is_some(), "serving");
        }
        registry.start_pinned();
        let mut tasks = JoinSet::new();
        let reloads = Reloads::new(&metrics);
        if let Some(tls) = &tls {
            reloads.follow_tls(&mut tasks, tls);
        }
        reloads.follow_upstream(&mut tasks, &client);
        if let Some(log) = &audit_log {
            log.follow(&reloads, &mut tasks);
        }
        serve_admin(&mut tasks, admin, (&registry, &metrics, &drain));
        keep_caches(&mut tasks, &registry, &metrics);
        if let Some(callers) = callers {
            callers.follow(&mut tasks, &reloads, &metrics);
        }
        let ender = Arc::clone(&registry);
        let begun = drain.begun();
        tasks.spawn(async move {
            begun.await;
            ender.drain();
        });
        let audit = audit_log.map(|log| log.audit);
        let service = service.audited(audit.clone());
        let tls = tls.map(|tls| tls.config());
        let clients = listener::run(listener, tls.clone(), service.clone(), drain.clone());
        match operators {
            None => clients.await,
            Some((listener, admission)) => {
                let service = service.bounded(admission);
                let operators = listener::run(listener, tls, service, drain.clone());
                tokio::join!(clients, operators);
            }
        }
        let left = drain.deadline().map_or(Duration::ZERO, |deadline| {
            deadline.saturating_duration_since(tokio::time::Instant::now())
        });
        registry.drain_tunnels(left).await;
        if let Some(audit) = audit {
            audit.finish(AUDIT_WRITE_TIME).await;
        }
        info!("drained");
        tasks.shutdown().await;
    }
}

/// Serves metrics and health.
fn serve_admin(
    tasks: &mut JoinSet<()>,
    admin: TcpListener,
    (registry, metrics, drain): (&Arc<Registry>, &Arc<Metrics>, &Drain),
) {
    let shown = AdminState {
        metrics: Arc::clone(metrics),
        readiness: Arc::clone(registry) as _,
        drain: drain.clone(),
    };
    let ends = metrics.task_ends();
    tasks.spawn(async move {
        restart_on_end(TaskKind::Admin, &ends, || {
            admin::serve(&admin, shown.clone())
        })
        .await;
    });
}

/// Follows what upstream offers, and ends caches that nobody wants or that there is no memory for.
fn keep_caches(tasks: &mut JoinSet<()>, registry: &Arc<Registry>, metrics: &Arc<Metrics>) {
    let (follower, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::Discovery, &ends, || follower.follow_discovery()).await;
    });
    let (sweeper, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::IdleCaches, &ends, || sweeper.end_idle()).await;
    });
    let (holder, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::Memory, &ends, || holder.hold_memory()).await;
    });
}

/// What TLS towards clients is made of, if it is spoken.
fn server_identity(settings: &ServeSettings) -> Result<Option<ServerIdentity>, TlsError> {
    let ListenTransport::Tls { cert, key, sni } = &settings.transport else {
        return Ok(None);
    };
    let front_proxy = settings.auth.front_proxy.as_ref();
    let authorities = [
        settings.auth.client_ca.as_ref(),
        front_proxy.map(|proxy| &proxy.client_ca),
    ];
    let files = TlsFiles {
        default: PairFiles {
            cert: cert.clone(),
            key: key.clone(),
        },
        named: sni.clone(),
        client_authorities: authorities.into_iter().flatten().cloned().collect(),
    };
    ServerIdentity::read(files).map(Some)
}

/// How open files are divided if so many connections of clients are asked for.
fn open_files(clients_max: usize) -> OpenFiles {
    let files = OpenFiles::of_process(clients_max);
    if files.clients < clients_max {
        let allowed = files.clients;
        warn!(
            allowed,
            "the limit of open files is too low for --connections-max"
        );
    }
    files
}

/// What upstream offers, if it tells soon.
async fn discovered_at_start(client: &Client) -> Option<Discovery> {
    match tokio::time::timeout(START_WAIT, discover(client)).await {
        Ok(Ok(discovery)) => return Some(discovery),
        Ok(Err(error)) => warn!(%error, "upstream cannot be asked what it has; going on asking"),
        Err(_) => warn!("upstream has not told in time what it has; going on asking"),
    }
    None
}

fn source(source: &UpstreamSource) -> client::ConnectSource {
    match source {
        UpstreamSource::Kubeconfig { path, context } => client::ConnectSource::Kubeconfig {
            path: path.clone(),
            context: context.clone(),
        },
        UpstreamSource::InCluster => client::ConnectSource::InCluster,
        UpstreamSource::Url(url) => client::ConnectSource::Url {
            url: url.clone(),
            ca_file: None,
        },
    }
}

fn registry_settings(
    settings: ServeSettings,
    admission: Admission,
    hooks: Hooks,
) -> RegistrySettings {
    let ring = settings.ring;
    RegistrySettings {
        pinned: settings.pin_resources,
        cached: settings.cached,
        idle_timeout: settings.idle_resource_timeout,
        retention: Retention {
            segment_slots: SEGMENT_SLOTS,
            events_min: 100,
            events_max: ring.events_max,
            bytes_max: ring.bytes_max,
            age_min: ring.age_min,
        },
        limits: ReadLimits {
            frame_len_max: settings.frame_len_max,
            coalesce_delay_max: settings.coalesce_delay_max,
            memory_max: settings.admission.memory_max,
        },
        admission: Some(admission),
        is_guarded: settings.auth.mode != AuthMode::None,
        hooks,
    }
}

#[cfg(test)]
mod tests;
