//! Composition root: builds all parts of a gateway from the settings, connects them, and owns every task.
//!
//! Start reading at [`Gateway::build`] and [`Gateway::run`]. `registry` decides which resources have a cache, by `cache_rule` and what
//! `api_services` learns; `slot` owns one cache and the task that fills it, by requests of `local_fetch`, and `consistency` and `drift`
//! compare it with upstream. `checkpoints` keeps caches for the next process, and `handover` exchanges them with other gateways.
//! `freshness` proves consistent reads, `forwarded` bounds forwarded requests, `endpoints` follows several API servers, `rebalance` sends
//! clients to other gateways, `callers` and `roles` set authentication and authorization up, `authorizer_probe` and `bound_objects` learn
//! what need not be asked again, `operators` reserves capacity for the operators' port, `pressure` decides what is given back while memory
//! is short, `recorders` counts in metrics, and `reloads` follows files. `controls` connects the gateway with the process, `reconfigure`
//! applies a changed configuration file to what `live` and others hold. `status` collects what the status page shows, and `start`
//! reads what the gateway waits for at its start.

mod api_services;
mod audit_log;
mod authorizer_probe;
mod bound_objects;
mod cache_age;
mod callers;
pub mod checkpoint;
mod checkpoints;
mod consistency;
mod controls;
mod drain_flag;
mod drift;
mod endpoints;
mod forwarded;
mod freshness;
mod handover;
mod hooks;
mod list_progress;
mod live;
mod local_fetch;
mod node_impersonation;
mod older_states;
mod operators;
mod pressure;
mod rebalance;
mod reconfigure;
mod recorders;
mod refusal_log;
mod registry;
mod reloads;
mod restored;
mod roles;
mod settings_check;
mod slot;
mod start;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::info;

use crate::admin::{AdminState, StatusFeed};
use crate::admission::Admission;
use crate::audit::{Audit, AuditError};
use crate::auth::guard::Guard;
use crate::cache::Retention;
use crate::checkpoint::directory::{DirectoryError, StateDirectory};
use crate::config::{
    AuthMode, CompressWatches, HandoverSettings, ListenTransport, ServeSettings, StateSettings,
    UpstreamSource,
};
use crate::connection::listener;
use crate::fairness::Users;
use crate::log_filter::LogControl;
use crate::metrics::{Metrics, TaskKind};
use crate::net::TcpListener;
use crate::passthrough::Passthrough;
use crate::serve::{ConnectionTable, Service};
use crate::serving_control::ServingControl;
use crate::shadow::Shadow;
use crate::shutdown::Drain;
use crate::task::restart_on_end;
use crate::tls::{ServerIdentity, TlsError, TlsFiles};
use crate::upstream::client::{self, Client};
use audit_log::AuditLog;
pub use authorizer_probe::is_transparent;
use bound_objects::CacheLookup;
use callers::Callers;
pub use callers::CallersError;
use checkpoints::Checkpoints;
pub use controls::ProcessControls;
use handover::Handover;
use hooks::Hooks;
use live::{LimitValues, LiveLimits};
use operators::OperatorLimits;
use rebalance::Rebalance;
pub use reconfigure::Configuration;
use reconfigure::LiveParts;
use registry::{Registry, RegistrySettings};
use reloads::Reloads;
pub use settings_check::{unusable_files, unusable_settings};
use slot::ReadLimits;
use start::{START_WAIT, discovered_at_start, learn_at_start, open_files};
use status::StatusCollector;

/// Events per segment of a resource's ring; history is freed in whole segments.
const SEGMENT_SLOTS: usize = 128;

/// How long the end waits for the last audit events to be written.
const AUDIT_WRITE_TIME: Duration = Duration::from_secs(5);

/// How long the end waits for the checkpoints. A base of gigabytes takes seconds; most of the time only the last changes are missing.
const CHECKPOINT_WRITE_TIME: Duration = Duration::from_secs(20);

/// Why the gateway cannot start; each is printed as one line.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Authentication cannot be set up as configured.
    #[error(transparent)]
    Callers(#[from] CallersError),
    /// The client of upstream cannot be built.
    #[error("cannot set up the client of the API server")]
    Connect(#[from] client::ConnectError),
    /// A serving certificate, or a file of client certificate authorities, cannot be used.
    #[error("TLS")]
    Tls(#[from] TlsError),
    /// A port cannot be opened.
    #[error("cannot listen on {address} ({flag})")]
    Listen {
        /// The flag with the address.
        flag: &'static str,
        /// The address to listen on.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] DirectoryError),
    /// A file that handovers need cannot be used.
    #[error("--handover-from: {0}")]
    Handover(String),
    /// The audit log cannot be started.
    #[error("audit")]
    Audit(#[from] AuditError),
    /// The port for metrics cannot be opened.
    #[error(transparent)]
    Admin(#[from] admin::ListenError),
    /// Two metrics have the same name.
    #[error("metrics")]
    Metrics(#[from] metrics::MetricsError),
}

/// A gateway that is ready to run.
pub struct Gateway {
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    tls: Option<Arc<ServerIdentity>>,
    client: Client,
    listener: TcpListener,
    /// The operators' port and its limits.
    operators: Option<(TcpListener, Admission)>,
    admin: TcpListener,
    service: Service,
    /// `None` if callers are not authenticated.
    callers: Option<Callers>,
    audit_log: Option<AuditLog>,
    controls: ProcessControls,
}

/// Runs a gateway until its drain has finished.
///
/// # Errors
/// See [`GatewayError`]; only at start. After that only the drain ends the gateway.
pub async fn run(settings: ServeSettings, drain: Drain) -> Result<(), GatewayError> {
    Gateway::build(settings).await?.run(drain).await;
    Ok(())
}

impl Gateway {
    /// Reads credentials, opens the ports, and reads discovery from upstream.
    ///
    /// # Errors
    /// See [`GatewayError`]. An unreachable upstream is not an error: the gateway starts and keeps trying.
    pub async fn build(settings: ServeSettings) -> Result<Self, GatewayError> {
        Self::build_with(settings, Hooks::default()).await
    }

    async fn build_with(settings: ServeSettings, hooks: Hooks) -> Result<Self, GatewayError> {
        let tls = server_identity(&settings)?.map(Arc::new);
        let metrics = Arc::new(Metrics::new()?);
        let checkpoints = settings.state.as_ref().map(checkpoints).transpose()?;
        let audit_log = AuditLog::start(settings.audit.as_ref(), &metrics)?;
        let servers = settings.api_servers.clone();
        let client = Client::connect_to(connect_source(&settings.upstream), servers).await?;
        let client = client.of_gateway();
        endpoints::record(&client, &metrics);
        let listener = bind("--listen", settings.listen)?;
        let handover = other_gateways(settings.handover.as_ref(), &listener).await?;
        let operators = settings
            .operator_listen
            .map(|address| bind("--operator-listen", address));
        let operators = operators.transpose()?;
        let admin = admin::listen(settings.admin_listen).await?;
        // If this times out, the checks continue when the gateway runs.
        let _ = tokio::time::timeout(START_WAIT, client.check_endpoints()).await;
        let discovery = discovered_at_start(&client).await;
        let is_answering = discovery.is_ok();
        let files = open_files(settings.admission.connections_max);
        let choices = (settings.requests_per_goaway, settings.compress_watches);
        let exempt = &settings.exempt;
        let users = Users::new(exempt.users.clone(), exempt.groups.clone());
        let callers = callers::callers(&settings.auth, &client, &metrics, users.clone())?;
        callers::report(&settings.auth);
        let identity = callers::forwarding_identity(settings.auth.mode);
        let (limits_of_clients, forwards) = operators::limits_of_clients(&settings);
        let passthrough = || {
            Passthrough::new(client.clone(), identity, metrics.passthrough())
                .with_proxy_headers(callers::proxy_headers(&settings.auth))
                .impersonating(callers::impersonator(callers.as_ref()))
        };
        let limits = operators.is_some().then(|| OperatorLimits {
            admission: operators::admission(settings.admission, &metrics),
            passthrough: operators::bounded(passthrough()),
        });
        let operators = operators.zip(limits.as_ref().map(|limits| limits.admission.clone()));
        let passthrough = passthrough().bounded(forwards, files);
        let admission = Admission::new(limits_of_clients, Some(metrics.admission()));
        let registry = Registry::new(
            registry_settings(
                settings,
                (admission, &metrics),
                hooks,
                checkpoints,
                handover,
            ),
            client.clone(),
            passthrough,
            Arc::clone(&metrics),
            discovery,
        );
        let registry = Arc::new(registry.with_operators(limits));
        learn_at_start(&registry, is_answering).await;
        let service = service(&registry, &metrics, callers.as_ref(), users, choices);
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
            controls: ProcessControls::default(),
        })
    }

    /// Connects the gateway with the rest of the process.
    #[must_use]
    pub fn with_controls(self, controls: ProcessControls) -> Self {
        Self { controls, ..self }
    }

    /// The address for clients.
    ///
    /// # Errors
    /// If the system cannot report it.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The address for operators, if there is one.
    ///
    /// # Errors
    /// If the system cannot report it.
    pub fn operator_address(&self) -> std::io::Result<Option<SocketAddr>> {
        self.operators
            .as_ref()
            .map(|(port, _)| port.local_addr())
            .transpose()
    }

    /// The address for metrics and health.
    ///
    /// # Errors
    /// If the system cannot report it.
    pub fn admin_address(&self) -> std::io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until the drain has finished.
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
            controls,
        } = self;
        log_addresses(&listener, &admin, tls.is_some());
        registry.start_pinned();
        registry.start_restored();
        let mut tasks = JoinSet::new();
        let handing = Arc::clone(&registry);
        tasks.spawn(async move { handing.start_handed_over().await });
        let reloads = Reloads::new(&metrics);
        if let Some(tls) = &tls {
            reloads.follow_tls(&mut tasks, tls);
        }
        reloads.follow_upstream(&mut tasks, &client);
        reloads.follow_expiry(&mut tasks);
        endpoints::follow(&mut tasks, &client, &metrics);
        if let Some(log) = &audit_log {
            log.follow(&reloads, &mut tasks);
        }
        let audit = audit_log.map(|log| log.audit);
        let operators_admission = operators.as_ref().map(|(_, admission)| admission.clone());
        let parts = LiveParts::new(&registry, operators_admission, &drain);
        let controls = controls.start(&mut tasks, &reloads, &metrics, parts);
        let access = AdminAccess {
            guard: callers.as_ref().map(|callers| callers.guard.clone()),
            audit: audit.clone(),
            log: controls.log(),
        };
        let state = admin_state(&registry, &metrics, &drain, access);
        serve_admin(&mut tasks, admin, state);
        keep_caches(&mut tasks, &registry, &metrics);
        if let Some(callers) = callers {
            callers.follow(&mut tasks, &reloads, &metrics, caches_of(&registry));
        }
        tasks.spawn(end_watches(Arc::clone(&registry), drain.clone()));
        let service = service.audited(audit.clone());
        let tls = tls.map(|tls| tls.config());
        // Operators' connections are not sent away: their port has a purpose.
        let connections = rebalance(&mut tasks, &registry, &metrics);
        let tracked = service.clone().tracked(connections);
        let clients = listener::run(listener, tls.clone(), tracked, drain.clone());
        match operators {
            None => clients.await,
            Some((listener, admission)) => {
                let service = service.bounded(admission);
                let operators = listener::run(listener, tls, service, drain.clone());
                tokio::join!(clients, operators);
            }
        }
        // Nobody is left who could need them. What the caches have received until now is in their checkpoints.
        registry.end_caches();
        registry.drain_tunnels(time_left(&drain)).await;
        registry.finish_checkpoints(CHECKPOINT_WRITE_TIME).await;
        if let Some(audit) = audit {
            audit.finish(AUDIT_WRITE_TIME).await;
        }
        info!("drained");
        tasks.shutdown().await;
        controls.finish(&metrics).await;
    }
}

fn caches_of(registry: &Arc<Registry>) -> CacheLookup {
    let registry = Arc::clone(registry);
    Arc::new(move |gvr| registry.kept_cache(gvr))
}

fn log_addresses(clients: &TcpListener, admin: &TcpListener, tls: bool) {
    if let (Ok(address), Ok(admin)) = (clients.local_addr(), admin.local_addr()) {
        info!(%address, %admin, tls, "serving");
    }
}

/// Opens a port; the error names its flag.
fn bind(flag: &'static str, address: SocketAddr) -> Result<TcpListener, GatewayError> {
    listener::bind(address).map_err(|source| GatewayError::Listen {
        flag,
        address,
        source,
    })
}

/// The other gateways, whose files are read once now.
async fn other_gateways(
    settings: Option<&HandoverSettings>,
    listener: &TcpListener,
) -> Result<Option<Arc<Handover>>, GatewayError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    handover::check_files(settings)
        .await
        .map_err(GatewayError::Handover)?;
    let own_port = listener.local_addr().map_or(0, |address| address.port());
    Ok(Some(Handover::new(settings.clone(), own_port)))
}

/// Who may use the admin port, and what it may change. See [`AdminState`].
struct AdminAccess {
    guard: Option<Guard>,
    audit: Option<Audit>,
    log: Option<LogControl>,
}

fn admin_state(
    registry: &Arc<Registry>,
    metrics: &Arc<Metrics>,
    drain: &Drain,
    access: AdminAccess,
) -> AdminState {
    let AdminAccess { guard, audit, log } = access;
    AdminState {
        metrics: Arc::clone(metrics),
        readiness: Arc::clone(registry) as _,
        drain: drain.clone(),
        status: StatusFeed::new(Arc::new(StatusCollector::new(
            Arc::clone(registry),
            metrics,
        ))),
        guard,
        audit,
        log,
        serving: registry.serving().clone(),
    }
}

/// Answers clients from the registry.
fn service(
    registry: &Arc<Registry>,
    metrics: &Metrics,
    callers: Option<&Callers>,
    users: Users,
    (requests_per_goaway, compress_watches): (usize, CompressWatches),
) -> Service {
    let admission = registry.admission().clone();
    let service = Service::new(Arc::clone(registry) as _, admission, metrics.listener());
    let service = service
        .ruled(registry.serving().clone(), Shadow::new(metrics.shadow()))
        .rebalanced(requests_per_goaway)
        .compressing(compress_watches);
    match callers {
        Some(callers) => service.guarded(callers.guard.clone()).shared_among(users),
        None => service,
    }
}

fn time_left(drain: &Drain) -> Duration {
    drain.deadline().map_or(Duration::ZERO, |deadline| {
        deadline.saturating_duration_since(tokio::time::Instant::now())
    })
}

/// Serves metrics, health and status.
fn serve_admin(tasks: &mut JoinSet<()>, admin: TcpListener, state: AdminState) {
    let ends = state.metrics.task_ends();
    tasks.spawn(async move {
        restart_on_end(TaskKind::Admin, &ends, || {
            admin::serve(&admin, state.clone())
        })
        .await;
    });
}

/// Ends the watches one after the other once the drain is closing, and then the caches.
async fn end_watches(registry: Arc<Registry>, drain: Drain) {
    drain.begun().await;
    registry.leave();
    drain.closing().await;
    let caches_end = registry.drain(drain.deadline());
    tokio::time::sleep_until(caches_end).await;
    registry.end_caches();
}

/// Starts the task that compares the gateway with others, if it is; returns the table for its clients' connections.
fn rebalance(
    tasks: &mut JoinSet<()>,
    registry: &Arc<Registry>,
    metrics: &Arc<Metrics>,
) -> Option<ConnectionTable> {
    let rebalance = Rebalance::new(registry.other_gateways()?, metrics.rebalance())?;
    let connections = rebalance.connections();
    let (registry, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::Rebalance, &ends, || rebalance.run(&registry)).await;
    });
    Some(connections)
}

/// Starts the tasks that read discovery again, that apply changes of APIServices, that end idle caches, and that evict caches while memory is short.
fn keep_caches(tasks: &mut JoinSet<()>, registry: &Arc<Registry>, metrics: &Arc<Metrics>) {
    let (discovering, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::Discovery, &ends, || {
            discovering.follow_discovery()
        })
        .await;
    });
    let (learning, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::ApiServices, &ends, || {
            learning.follow_api_services()
        })
        .await;
    });
    let (sweeping, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::IdleCaches, &ends, || sweeping.end_idle()).await;
    });
    // Open watches are told of changed serving rules.
    let (serving, ends) = (registry.serving().clone(), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::ServingRules, &ends, || serving.run()).await;
    });
    let (evicting, ends) = (Arc::clone(registry), metrics.task_ends());
    tasks.spawn(async move {
        restart_on_end(TaskKind::Memory, &ends, || evicting.hold_memory()).await;
    });
}

/// The certificates for the clients' ports; `None` without TLS.
fn server_identity(settings: &ServeSettings) -> Result<Option<ServerIdentity>, TlsError> {
    TlsFiles::of(settings).map(ServerIdentity::read).transpose()
}

fn checkpoints(settings: &StateSettings) -> Result<Checkpoints, DirectoryError> {
    let key_file = settings.key_file.as_deref();
    let directory = StateDirectory::open(&settings.directory, key_file, settings.len_max)?;
    Ok(Checkpoints::new(
        directory,
        settings.interval,
        settings.excluded.clone(),
    ))
}

/// How to connect to the API server.
#[must_use]
pub fn connect_source(source: &UpstreamSource) -> client::ConnectSource {
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
    (admission, metrics): (Admission, &Metrics),
    hooks: Hooks,
    checkpoints: Option<Checkpoints>,
    handover: Option<Arc<Handover>>,
) -> RegistrySettings {
    let ring = settings.ring;
    RegistrySettings {
        pinned: settings.pin_resources,
        cached: settings.cached,
        catch_up: settings.catch_up,
        retention: Retention {
            segment_slots: SEGMENT_SLOTS,
            events_min: 100,
            events_max: ring.events_max,
            bytes_max: ring.bytes_max,
            age_max: Duration::MAX,
        },
        history_age_min: ring.age_min,
        limits: ReadLimits {
            frame_len_max: settings.frame_len_max,
            coalesce_delay_max: settings.coalesce_delay_max,
            live: LiveLimits::new(LimitValues {
                staleness_bound: settings.staleness_bound,
                drift_interval: settings.drift_interval,
                memory_max: settings.admission.memory_max,
                idle_timeout: settings.idle_resource_timeout,
                relay_part: settings.relay_percent.part(),
            }),
        },
        admission,
        is_guarded: settings.auth.mode != AuthMode::None,
        hooks,
        checkpoints,
        handover,
        serving: ServingControl::new(settings.serving, metrics.serving()),
        is_tls: matches!(settings.transport, ListenTransport::Tls { .. }),
    }
}

#[cfg(test)]
mod tests;

// Under the names that they have everywhere.
use kube_fanout_cache::{cache, fairness, view};
use kube_fanout_informer as informer;
use kube_fanout_protocol as protocol;
use kube_fanout_serving::{
    admin, admission, audit, auth, build_info, cache_rule, cli, config, connection, log_filter,
    metrics, numbers, passthrough, reload, serve, serving_control, shadow, shutdown, tables,
    talkers, task, telemetry, tls, watch,
};
use kube_fanout_upstream::{self as upstream, blocking, error_chain, log_limit, net};
use kube_fanout_wire::{decode, resource};
