//! A gateway that runs inside a test. The test provides its settings, its upstream and its clients.

use std::net::SocketAddr;

use kube_fanout::config::ServeSettings;
use kube_fanout::gateway::{Gateway, ProcessControls};
use kube_fanout::log_filter::{LogControl, LogFilter};
use kube_fanout::shutdown::Drain;
use tokio::task::JoinSet;
use tracing::level_filters::LevelFilter;

/// A running gateway and its addresses.
pub(crate) struct Running {
    /// The address at which it serves clients.
    pub(crate) address: SocketAddr,
    #[allow(dead_code, reason = "not every test reads metrics")]
    pub(crate) admin: SocketAddr,
    #[allow(dead_code, reason = "not every test uses the operators' port")]
    pub(crate) operators: Option<SocketAddr>,
    drain: Drain,
    tasks: JoinSet<()>,
}

impl Running {
    pub(crate) async fn start(settings: ServeSettings, drain: Drain) -> Self {
        let gateway = Gateway::build(settings).await.unwrap();
        let (address, admin) = (gateway.address().unwrap(), gateway.admin_address().unwrap());
        let operators = gateway.operator_address().unwrap();
        let mut tasks = JoinSet::new();
        let level = LevelFilter::INFO;
        let log = LogControl::new(LogFilter::of_level(level), |_| {});
        let controls = ProcessControls {
            log: Some(log),
            ..ProcessControls::default()
        };
        tasks.spawn(gateway.with_controls(controls).run(drain.clone()));
        Self {
            address,
            admin,
            operators,
            drain,
            tasks,
        }
    }

    pub(crate) fn begin_drain(&self) {
        self.drain.begin();
    }

    /// Starts the drain, unless it has started, and waits for its end.
    pub(crate) async fn ended(mut self) {
        self.begin_drain();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}
