//! A gateway process without a cache, and the request that makes it fill one. It ends with this program.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hyper::StatusCode;
use kube_fanout::resource::Encoding;
use tokio::io::AsyncWriteExt;

use crate::cli::ServerFlags;
use crate::process::Usage;
use crate::runner::gateway::{GatewayProcess, kubeconfig};
use crate::target::Target;
use crate::wire::response::read_head;

/// A list without objects: it takes the time until the cache of all namespaces can be read.
const PATH: &str = "/api/v1/namespaces/nothing-is-here/pods?resourceVersion=0";
/// Pause after a 429, which means that the cache is not ready yet.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A gateway's flags for its upstream.
#[derive(Debug)]
pub struct Upstream {
    folder: PathBuf,
    arguments: Vec<String>,
}

impl Upstream {
    /// The server of the flags; credentials go to a file in `folder`.
    pub fn of(server: &ServerFlags, folder: &Path) -> Result<Self> {
        let target = Target::new(
            &server.target,
            server.token.as_deref(),
            server.ca.as_deref(),
        )?;
        let arguments = if target.tls.is_some() {
            let file = folder.join("kubeconfig");
            let ca = server.ca.as_ref().context("https needs --ca FILE")?;
            let text = kubeconfig(
                &server.target,
                Some(&ca.canonicalize()?),
                target.token.as_deref(),
            );
            std::fs::write(&file, text).with_context(|| file.display().to_string())?;
            vec!["--kubeconfig".to_owned(), file.display().to_string()]
        } else {
            vec!["--upstream".to_owned(), server.target.clone()]
        };
        Ok(Self {
            folder: folder.to_owned(),
            arguments,
        })
    }
}

/// A gateway that serves and has no cache.
#[derive(Debug)]
pub struct FreshGateway(GatewayProcess);

impl FreshGateway {
    /// Starts a gateway, and waits until it serves.
    pub async fn start(program: &Path, upstream: &Upstream) -> Result<Self> {
        let mut flags = ["--auth", "none"].map(str::to_owned).to_vec();
        flags.extend(upstream.arguments.iter().cloned());
        let gateway = GatewayProcess::start(program, &upstream.folder, &flags).await?;
        Ok(Self(gateway))
    }

    pub fn target(&self) -> Result<Target> {
        Target::new(&self.0.url, None, None)
    }

    /// Its CPU and memory.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.0.process.pid()?)
    }

    /// Requests pods, which makes the gateway fill their cache, until the cache can be read.
    pub async fn ready(&mut self, encoding: Encoding, wait: Duration) -> Result<()> {
        let target = self.target()?;
        let deadline = Instant::now() + wait;
        loop {
            let asking = tokio::time::timeout(wait, status(&target, encoding)).await;
            match asking.with_context(|| format!("{PATH}: no answer within {wait:?}"))?? {
                StatusCode::OK => return Ok(()),
                StatusCode::TOO_MANY_REQUESTS if Instant::now() < deadline => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                status => bail!("{PATH}: {status}\n{}", self.0.process.last_lines()),
            }
        }
    }

    pub async fn stop(mut self) -> Result<()> {
        self.0.process.stop().await
    }
}

async fn status(target: &Target, encoding: Encoding) -> Result<StatusCode> {
    let mut stream = target.connect("http/1.1").await?;
    let request = target.fetch_text_as(PATH, encoding.media_type());
    stream.write_all(&request).await?;
    let head = read_head(&mut stream).await.context(PATH)?;
    Ok(StatusCode::from_u16(head.status)?)
}
