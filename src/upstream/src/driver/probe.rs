//! Lists of one object, which answer questions about a resource: how its lists are named and laid out, its current version, and
//! whether upstream has it in protobuf. No object is kept.

use http::header::WARNING;

use super::fetch::{Fetch, RequestPurpose};
use super::request::{self, Collection};
use super::response::{fetch_body, fetch_whole};
use crate::decode::{scan_list, scan_protobuf_list};
use crate::reflector::{Failure, ListVersion};
use crate::resource::{Encoding, Gvr, Layout, ResourceVersion};

/// The format of a resource's lists, as a list of one object shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Kind of the list, such as `PodList`; custom resources may use any name.
    pub list_kind: String,
    /// Layout of the JSON.
    pub layout: Layout,
    /// Values of the `Warning` headers. Every reader of the resource gets them (docs/PROTOCOL.md §3.11).
    pub warnings: Vec<String>,
}

/// Reads the format of the resource's lists from a consistent list of one object. Upstream sends that object whole.
///
/// # Errors
/// See [`Failure`].
pub async fn probe<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<Probe, Failure> {
    let path = format!("{}?limit=1", gvr.collection_path());
    let response = fetch_whole(fetch, path, RequestPurpose::Read, Encoding::Json)
        .await
        .map_err(|fault| fault.failure)?;
    let list = scan_list(response.body()).map_err(|_| Failure::Protocol)?;
    let warnings = response
        .headers()
        .get_all(WARNING)
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned));
    Ok(Probe {
        warnings: warnings.collect(),
        list_kind: list.kind,
        layout: list.layout,
    })
}

/// What a list of one object shows of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestVersion {
    /// The version.
    pub version: ResourceVersion,
    /// How many objects there are, if upstream says so.
    pub count: Option<usize>,
}

/// Reads the current version of a collection: a state of at least this version is fresh enough for every consistent read
/// that started before the call. This costs upstream the metadata of one object.
///
/// # Errors
/// See [`Failure`].
pub async fn newest_version<F: Fetch>(
    fetch: &F,
    collection: &Collection,
) -> Result<NewestVersion, Failure> {
    let path = request::list(collection, ListVersion::Latest, None, Some(1));
    let body = fetch_body(fetch, path, RequestPurpose::ReadVersions, Encoding::Json)
        .await
        .map_err(|fault| fault.failure)?;
    let list = scan_list(&body).map_err(|_| Failure::Protocol)?;
    let listed = list.items.len();
    let remaining = list
        .remaining_item_count
        .and_then(|count| usize::try_from(count).ok());
    Ok(NewestVersion {
        version: list.resource_version,
        count: match list.continue_token.is_empty() {
            true => Some(listed),
            false => remaining.map(|remaining| remaining.saturating_add(listed)),
        },
    })
}

/// Whether upstream lists the resource in protobuf, as it does for compiled-in kinds. Costs as much as a probe.
///
/// # Errors
/// See [`Failure`]. A refusal of the encoding is not an error.
pub async fn offers_protobuf<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<bool, Failure> {
    let path = format!("{}?limit=1", gvr.collection_path());
    match fetch_body(fetch, path, RequestPurpose::Read, Encoding::Protobuf).await {
        Ok(body) => Ok(scan_protobuf_list(&body).is_ok()),
        Err(fault) if fault.is_not_acceptable() || fault.rejection.is_some() => Ok(false),
        Err(fault) => Err(fault.failure),
    }
}

#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::samples::scripted::Script;

    #[tokio::test]
    async fn a_refused_probe_says_when_to_come_again() {
        let (script, mut requests) = Script::new();
        let pods = Gvr::new("", "v1", "pods");
        let answer = async {
            let request = requests.recv().await.unwrap();
            let status = r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":7}}"#;
            request.whole(429, status).await;
        };
        let (probed, ()) = tokio::join!(probe(&script, &pods), answer);
        let failure = probed.unwrap_err();
        assert_eq!(failure.retry_after_seconds(), 7, "{failure}");
    }

    #[tokio::test]
    async fn a_failure_to_respond_is_not_an_unreadable_response() {
        let (script, mut requests) = Script::new();
        let pods = Collection::all(&Gvr::new("", "v1", "pods"));
        let fail = async { requests.recv().await.unwrap().fail() };
        let (probed, ()) = tokio::join!(newest_version(&script, &pods), fail);
        assert_eq!(probed.unwrap_err(), Failure::Transport);
        let answer = async {
            let request = requests.recv().await.unwrap();
            request.whole(200, "not a list").await;
        };
        let (probed, ()) = tokio::join!(newest_version(&script, &pods), answer);
        assert_eq!(probed.unwrap_err(), Failure::Protocol);
    }
}
