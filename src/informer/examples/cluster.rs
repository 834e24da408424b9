//! The API server of an example: the one named by flags, or an embedded one in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::Uri;
use kube_fanout_informer::client::{Client, ConnectSource};
use kube_fanout_testkit::apiserver::churn::InitialCount;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// How long an example runs with its own embedded server.
const DURATION: Duration = Duration::from_secs(10);
/// Length of the embedded server's objects, in bytes.
const OBJECT_LEN: usize = 512;

/// Which API server to use (the embedded one if none is named), and how long to run.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Server {
    /// A server without credentials, as `kube-fanout serve` and `kubectl proxy` are
    #[arg(long, value_name = "URL", conflicts_with = "kubeconfig")]
    server: Option<Uri>,
    /// A server and credentials
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context to use of the kubeconfig
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
    /// How long to run; by default until Ctrl-C, or 10s with the embedded server
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
}

/// A client, and the embedded server if there is one.
pub(crate) struct Cluster {
    pub(crate) client: Arc<Client>,
    pub(crate) embedded: Option<Apiserver>,
    /// When to stop; without it, the example runs until Ctrl-C.
    pub(crate) until: Option<Instant>,
}

impl Cluster {
    /// Connects to the server named by the flags, or starts an embedded one with `objects` and `churn_per_second` changes.
    pub(crate) async fn connect(
        server: Server,
        objects: Vec<InitialCount>,
        churn_per_second: u32,
    ) -> anyhow::Result<Self> {
        let named = match (server.server, server.kubeconfig) {
            (Some(url), _) => Some(ConnectSource::Url { url, ca_file: None }),
            (None, Some(path)) => Some(ConnectSource::Kubeconfig {
                path,
                context: server.context,
            }),
            (None, None) => None,
        };
        let (source, embedded) = match named {
            Some(source) => (source, None),
            None => {
                let server = embedded(objects, churn_per_second).await?;
                let source = ConnectSource::url(&format!("http://{}/", server.address()))?;
                (source, Some(server))
            }
        };
        let client = Arc::new(Client::connect(source).await?);
        let duration = server
            .duration
            .or_else(|| embedded.as_ref().map(|_| DURATION));
        Ok(Self {
            client,
            embedded,
            until: duration.map(|duration| Instant::now() + duration),
        })
    }

    /// Waits until the time to stop, or for Ctrl-C. Cancel-safe.
    pub(crate) async fn over(&self) -> anyhow::Result<()> {
        let in_time = async {
            match self.until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = in_time => Ok(()),
            stopped = tokio::signal::ctrl_c() => stopped.context("cannot wait for Ctrl-C"),
        }
    }
}

async fn embedded(objects: Vec<InitialCount>, churn_per_second: u32) -> anyhow::Result<Apiserver> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .context("cannot open a port on 127.0.0.1")?;
    let options = Options {
        objects,
        churn_per_second,
        object_len: OBJECT_LEN,
        ..Options::default()
    };
    Ok(apiserver::start(listener, options)?)
}
