//! The API server that an example talks to: one that flags name, or one inside this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::Uri;
use kube_fanout::apiserver::churn::ObjectCount;
use kube_fanout::apiserver::{self, Apiserver, Options};
use kube_fanout::cli::Span;
use kube_fanout::upstream::client::{Client, UpstreamSource};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// How long an example goes on with a server of its own.
const DURATION: Duration = Duration::from_secs(10);
/// How long the embedded server's objects are, in bytes.
const OBJECT_LEN: usize = 512;

/// Which API server, the one inside this process if none is named, and how long.
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
    /// How long to go on; without it until Ctrl-C, or 10s where the server is in this process
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
}

/// A client, and the server if it is ours.
pub(crate) struct Cluster {
    pub(crate) client: Arc<Client>,
    pub(crate) embedded: Option<Apiserver>,
    /// When to stop; never by itself if there is none.
    pub(crate) until: Option<Instant>,
}

impl Cluster {
    /// Connects to the server of the flags, or starts one with these objects, of which so many a second are changed.
    pub(crate) async fn connect(
        server: Server,
        objects: Vec<ObjectCount>,
        churn_per_second: u32,
    ) -> anyhow::Result<Self> {
        let named = match (server.server, server.kubeconfig) {
            (Some(url), _) => Some(UpstreamSource::Url { url, ca_file: None }),
            (None, Some(path)) => Some(UpstreamSource::Kubeconfig {
                path,
                context: server.context,
            }),
            (None, None) => None,
        };
        let (source, embedded) = match named {
            Some(source) => (source, None),
            None => {
                let server = embedded(objects, churn_per_second).await?;
                let source = UpstreamSource::url(&format!("http://{}/", server.address()))?;
                (source, Some(server))
            }
        };
        let client = Arc::new(Client::connect(source).await?);
        let duration = match server.duration {
            Some(span) => Some(span.0),
            None => embedded.as_ref().map(|_| DURATION),
        };
        Ok(Self {
            client,
            embedded,
            until: duration.map(|duration| Instant::now() + duration),
        })
    }

    /// Waits for the end of its time, or Ctrl-C. Safe to cancel.
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

async fn embedded(objects: Vec<ObjectCount>, churn_per_second: u32) -> anyhow::Result<Apiserver> {
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
