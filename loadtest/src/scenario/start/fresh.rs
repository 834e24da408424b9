//! The request that makes a gateway without a cache fill one.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hyper::StatusCode;
use kube_fanout::resource::Encoding;
use tokio::io::AsyncWriteExt;

use crate::cli::ServerFlags;
use crate::metrics::Metrics;
use crate::runner::gateway::{GatewayProcess, kubeconfig};
use crate::target::Target;
use crate::wire::response::read_head;

/// A list without objects: it takes the time until the cache of all namespaces can be read.
const PATH: &str = "/api/v1/namespaces/nothing-is-here/pods?resourceVersion=0";
/// Pause after a 429, which means that the cache is not ready yet.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// A gateway's flags for its upstream; credentials go to a file in `folder`. The gateway checks nobody: the time
/// of a review is not that of a start.
pub fn gateway_flags(server: &ServerFlags, target: &Target, folder: &Path) -> Result<Vec<String>> {
    let mut flags = ["--auth", "none"].map(str::to_owned).to_vec();
    if target.tls.is_none() {
        flags.extend(["--upstream".to_owned(), server.target.clone()]);
        return Ok(flags);
    }
    let file = folder.join("kubeconfig");
    let ca = server.ca.as_ref().context("https needs --ca FILE")?;
    let text = kubeconfig(
        &server.target,
        Some(&ca.canonicalize()?),
        target.token.as_deref(),
    );
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    flags.extend(["--kubeconfig".to_owned(), file.display().to_string()]);
    Ok(flags)
}

/// Requests pods, which makes the gateway fill their cache, until the cache can be read.
pub async fn ready(gateway: &GatewayProcess, encoding: Encoding, wait: Duration) -> Result<()> {
    let target = Target::new(&gateway.url, None, None)?;
    let deadline = Instant::now() + wait;
    loop {
        let asking = tokio::time::timeout(wait, status(&target, encoding)).await;
        match asking.with_context(|| format!("{PATH}: no answer within {wait:?}"))?? {
            // After ten seconds the gateway forwards the request instead.
            StatusCode::OK if is_cached(gateway, encoding).await? => return Ok(()),
            StatusCode::OK if Instant::now() < deadline => {}
            StatusCode::TOO_MANY_REQUESTS if Instant::now() < deadline => {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            status => bail!("{PATH}: {status}\n{}", gateway.process.last_lines()),
        }
    }
}

/// Whether the gateway's metrics say that it has the cache.
async fn is_cached(gateway: &GatewayProcess, encoding: Encoding) -> Result<bool> {
    let metrics = Metrics::of_gateway(&gateway.admin_url).await?;
    let encoding = format!("encoding=\"{}\"", encoding.as_str());
    let labels = ["resource=\"pods\"", "state=\"ready\"", &encoding];
    Ok(metrics.is_set("kube_fanout_cache_state", &labels))
}

async fn status(target: &Target, encoding: Encoding) -> Result<StatusCode> {
    let mut stream = target.connect("http/1.1").await?;
    let request = target.fetch_text_as(PATH, encoding.media_type());
    stream.write_all(&request).await?;
    let head = read_head(&mut stream, &mut false).await.context(PATH)?;
    Ok(StatusCode::from_u16(head.status)?)
}
