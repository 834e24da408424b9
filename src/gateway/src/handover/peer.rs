//! One other gateway: what it is asked, and why what it sends is not used. Nothing that it sends is believed: each response is bounded in
//! time and length, and a state is decoded and checked as a checkpoint is.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::pipe::{self, PipeReader, PipeSender};
use crate::checkpoint::{CheckpointContent, CheckpointError, CheckpointReader};
use crate::config::HandoverSettings;
use crate::error_chain::root_cause;
use crate::metrics::HandoverOutcome;
use crate::protocol::handover::{GatewayLoad, HANDOVER_MEDIA_TYPE, HandoverIndex, HandoverTarget};
use crate::resource::CacheKey;
use crate::restored::{RestoreError, WantedState, read_state, whole};
use crate::upstream::client::{Client, ConnectError, ConnectSource, ResponseBody, SendError};

/// A gateway may take this part (a third) of a handover's time until its response begins: it reviews the caller first, and reads the cluster's
/// uid. One that does not respond leaves time for others.
const HEAD_SHARE: u32 = 3;
/// However long a handover may take: the response begins before the state is written.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// The same for what is in memory.
const INDEX_HEAD_TIME_MAX: Duration = Duration::from_secs(2);
/// How long it may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// An index names some hundreds of caches.
const INDEX_LEN_MAX: usize = 1 << 20;
/// A load is a line.
const LOAD_LEN_MAX: usize = 4 << 10;

/// Why nothing was taken over from a gateway.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandoverError {
    #[error("no other gateway has the cache")]
    Missing,
    #[error("the name of the other gateways cannot be resolved: {0}")]
    Unresolved(std::io::Error),
    #[error("there is no other gateway")]
    Alone,
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("no response from the other gateway: {}", of_gateway(.0))]
    Send(#[from] SendError),
    #[error("the other gateway refuses this one's credentials, or they lack a right: {0}")]
    Denied(StatusCode),
    #[error("the other gateway is handing over as many caches as it may")]
    Busy,
    #[error("the response is none of a handover: {0}")]
    Refused(String),
    #[error("it did not come in time")]
    TimedOut,
    #[error("it broke off: {0}")]
    Cut(String),
    #[error("it is longer than a cache may be")]
    TooLong,
    #[error(transparent)]
    State(RestoreError),
}

impl HandoverError {
    /// Whether the gateway did not respond.
    pub(super) const fn is_silence(&self) -> bool {
        matches!(self, Self::Send(_) | Self::TimedOut)
    }

    pub(super) const fn outcome(&self) -> HandoverOutcome {
        match self {
            Self::Missing | Self::Alone => HandoverOutcome::Missing,
            Self::Unresolved(_) | Self::Connect(_) | Self::Send(_) => HandoverOutcome::Unreachable,
            Self::Denied(_) => HandoverOutcome::Denied,
            Self::Busy => HandoverOutcome::Busy,
            Self::Refused(_) => HandoverOutcome::Refused,
            Self::TimedOut => HandoverOutcome::TimedOut,
            Self::Cut(_) => HandoverOutcome::Cut,
            Self::TooLong => HandoverOutcome::TooLong,
            Self::State(RestoreError::OtherResource) => HandoverOutcome::OtherResource,
            Self::State(RestoreError::OtherCluster | RestoreError::UnknownCluster) => {
                HandoverOutcome::OtherCluster
            }
            Self::State(RestoreError::Checkpoint(_)) => HandoverOutcome::Damaged,
        }
    }
}

/// The error of a request to a gateway, with its cause. The client's own words are for API servers.
fn of_gateway(error: &SendError) -> String {
    let cause = root_cause(error);
    match error {
        SendError::Unreachable(_) => format!("cannot connect to it: {cause}"),
        SendError::Untrusted(_) => format!("its certificate is not trusted: {cause}"),
        SendError::Broken(_) | SendError::Lost => "the connection broke".to_owned(),
        SendError::Unprocessed(_) => "it closed the connection".to_owned(),
        SendError::Timeout => "it did not answer in time".to_owned(),
        SendError::Credentials(_) => format!("the token for it cannot be read: {cause}"),
        SendError::Saturated
        | SendError::Abandoned
        | SendError::NoEndpoint
        | SendError::Target(_) => format!("nothing was sent: {cause}"),
    }
}

/// A connection to one other gateway.
pub(super) struct HandoverPeer {
    client: Client,
    len_max: u64,
    head_time_max: Duration,
}

impl HandoverPeer {
    /// Reads the credentials, and prepares a connection.
    pub(super) async fn new(
        settings: &HandoverSettings,
        address: SocketAddr,
    ) -> Result<Self, HandoverError> {
        let scheme = settings.from.scheme_str().unwrap_or("https");
        let url: Result<Uri, _> = format!("{scheme}://{address}").parse();
        let host = settings
            .from
            .host()
            .unwrap_or_default()
            .trim_matches(|c| matches!(c, '[' | ']'));
        let source = ConnectSource::Peer {
            url: url.map_err(|error| HandoverError::Refused(error.to_string()))?,
            ca_file: settings.ca_file.clone(),
            server_name: settings.server_name.as_deref().unwrap_or(host).to_owned(),
            token_file: settings.token_file.clone(),
        };
        Ok(Self {
            client: Client::connect(source).await?,
            len_max: settings.len_max,
            head_time_max: head_time_max(settings.timeout),
        })
    }

    /// The caches that the gateway hands over.
    pub(super) async fn index(&self) -> Result<Vec<CacheKey>, HandoverError> {
        let index: HandoverIndex = self.read(&HandoverTarget::Index, INDEX_LEN_MAX).await?;
        Ok(index.keys().collect())
    }

    /// How much the gateway has to do.
    pub(super) async fn load(&self) -> Result<GatewayLoad, HandoverError> {
        self.read(&HandoverTarget::Load, LOAD_LEN_MAX).await
    }

    /// Reads a short response in JSON.
    async fn read<T: DeserializeOwned>(
        &self,
        target: &HandoverTarget,
        len_max: usize,
    ) -> Result<T, HandoverError> {
        let response = self.ask(target, INDEX_HEAD_TIME_MAX).await?;
        let body = Limited::new(response.into_body(), len_max).collect();
        let body = in_time(SILENCE_MAX, body)
            .await?
            .map_err(|error| HandoverError::Cut(error.to_string()))?;
        serde_json::from_slice(&body.to_bytes())
            .map_err(|error| HandoverError::Refused(error.to_string()))
    }

    /// The state of a cache, and the number of bytes that it took.
    pub(super) async fn take(
        &self,
        wanted: &WantedState,
    ) -> Result<(CheckpointContent, u64), HandoverError> {
        let target = HandoverTarget::Cache(wanted.kind.cache_key());
        let response = self.ask(&target, self.head_time_max).await?;
        let media_type = response.headers().get(CONTENT_TYPE);
        if media_type.is_none_or(|value| value != HANDOVER_MEDIA_TYPE) {
            let reason = format!("its media type is {media_type:?}");
            return Err(HandoverError::Refused(reason));
        }
        let (sender, reader) = pipe::to_thread();
        let wanted = wanted.clone();
        let decoded = reader.read_by(move |reader| decode(reader, &wanted));
        let received = receive(response.into_body(), sender, self.len_max).await;
        let decoded = decoded.await.unwrap_or_else(|panic| {
            let panic = CheckpointError::Damaged(panic.to_string());
            Err(RestoreError::Checkpoint(panic))
        });
        // A state that cannot be decoded is not received to its end; a cut one cannot be decoded.
        match (received?, decoded) {
            (len, Ok(content)) => Ok((content, len)),
            (_, Err(error)) => Err(HandoverError::State(error)),
        }
    }

    /// Sends a request; `time_max` is for the connection and the head of the response.
    async fn ask(
        &self,
        target: &HandoverTarget,
        time_max: Duration,
    ) -> Result<Response<ResponseBody>, HandoverError> {
        let request = Request::get(target.path())
            .body(())
            .map_err(|error| HandoverError::Refused(error.to_string()))?;
        let response = in_time(time_max, self.client.send(request)).await??;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_FOUND => Err(HandoverError::Missing),
            StatusCode::TOO_MANY_REQUESTS => Err(HandoverError::Busy),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(HandoverError::Denied(status))
            }
            status => Err(HandoverError::Refused(status.to_string())),
        }
    }
}

/// How long a gateway may take until its response begins.
fn head_time_max(timeout: Duration) -> Duration {
    HEAD_TIME_MAX.min(timeout / HEAD_SHARE)
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = T> + Send,
) -> Result<T, HandoverError> {
    timeout(limit, work)
        .await
        .map_err(|_| HandoverError::TimedOut)
}

/// Passes a body to the thread that decodes it; returns its length. Ends early if the thread has seen enough.
async fn receive(
    mut body: ResponseBody,
    sender: PipeSender,
    len_max: u64,
) -> Result<u64, HandoverError> {
    let mut len = 0;
    while let Some(frame) = in_time(SILENCE_MAX, body.frame()).await? {
        let chunk: Bytes = frame
            .map_err(|error| HandoverError::Cut(error.to_string()))?
            .into_data()
            .unwrap_or_default();
        len += chunk.len() as u64;
        if len > len_max {
            return Err(HandoverError::TooLong);
        }
        if sender.send(chunk).await.is_err() {
            return Ok(len);
        }
    }
    // The thread may have failed on the last chunk.
    let _ = sender.end().await;
    Ok(len)
}

fn decode(reader: PipeReader, wanted: &WantedState) -> Result<CheckpointContent, RestoreError> {
    let reader = CheckpointReader::open_stream(reader)?;
    whole(read_state(reader, wanted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_gateway_holds_a_handover_up_for_a_part_of_its_time() {
        assert_eq!(
            head_time_max(Duration::from_secs(6)),
            Duration::from_secs(2)
        );
        assert_eq!(head_time_max(Duration::from_secs(300)), HEAD_TIME_MAX);
    }

    #[test]
    fn the_error_of_a_request_names_a_gateway() {
        let error = HandoverError::from(SendError::Timeout).to_string();
        assert_eq!(
            error,
            "no response from the other gateway: it did not answer in time"
        );
    }
}
