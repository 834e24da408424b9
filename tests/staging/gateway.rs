//! A gateway that runs in a test. What it asks, and what asks it, is the test's own.

use std::net::SocketAddr;

use kube_fanout::config::ServeSettings;
use kube_fanout::gateway::Gateway;
use kube_fanout::shutdown::Drain;
use tokio::task::JoinSet;

/// A gateway on free ports.
pub(crate) struct Running {
    /// Where clients are served.
    pub(crate) address: SocketAddr,
    #[allow(dead_code, reason = "not every test asks for metrics")]
    pub(crate) admin: SocketAddr,
    #[allow(dead_code, reason = "not every test has operators")]
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
        tasks.spawn(gateway.run(drain.clone()));
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

    /// Begins the drain, if that has not been done, and waits for its end.
    pub(crate) async fn ended(mut self) {
        self.begin_drain();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}
