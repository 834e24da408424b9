//! One request to upstream for a list that clients share.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, VARY, WARNING};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::super::stream::{is_accepted, is_final};
use super::request::ListKey;
use super::state::{ListTable, TableList};
use crate::fairness::Permit;
use crate::resource::ResourceVersion;
use crate::upstream::client::Client;

/// Rows hold ages in whole seconds: who comes later than this after a list was requested does not get it. A check whether it may be given takes
/// at most as long.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(1);
/// Who waits for a list that takes longer is forwarded.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// A page of 500 rows with their objects' metadata has one or two megabytes, before compression. Longer lists are forwarded.
const LIST_LEN_MAX: usize = 2 << 20;
/// Upstream's response headers that clients get.
const HEADERS: [HeaderName; 5] = [CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY, WARNING];
/// How a Table in JSON begins.
const HEAD: [&str; 2] = [
    r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"#,
    r#","metadata":{"resourceVersion":""#,
];
const VERSION_LEN_MAX: usize = 20;

/// Fetches a list. When it is dropped, its place is free for the next one.
pub(super) struct TableListFetch {
    pub(super) table: Arc<ListTable>,
    pub(super) client: Arc<Client>,
    pub(super) key: ListKey,
    pub(super) number: u64,
    pub(super) begun: Instant,
}

/// Why an answer cannot be shared. Its clients are forwarded.
enum Unshared {
    /// The next one may be.
    Now,
    /// The next one will not be either.
    Lasting,
}

impl TableListFetch {
    /// Gives the list to those that wait for it, and keeps it for a short time.
    pub(super) async fn run(self, sender: watch::Sender<Option<Arc<TableList>>>, permit: Permit) {
        let fetched = timeout(FETCH_MAX, self.fetch(permit)).await;
        let list = match fetched.unwrap_or(Err(Unshared::Now)) {
            Ok(list) => Arc::new(list),
            Err(Unshared::Now) => return,
            Err(Unshared::Lasting) => return self.table.lock().refuse(&self.key),
        };
        self.publish(&list);
        sender.send_replace(Some(list));
        // From here on only the table and those that wait have the list: the next one frees its place.
        drop(sender);
        sleep_until(self.begun + KEPT_FOR).await;
    }

    /// It is kept before those that wait have it, so that none of them finds it still at upstream.
    fn publish(&self, list: &Arc<TableList>) {
        let mut state = self.table.lock();
        if let Some(entry) = state.entries.get_mut(&self.key)
            && entry
                .current
                .take_if(|current| current.number == self.number)
                .is_some()
        {
            entry.kept = Some(Arc::clone(list));
        }
    }

    async fn fetch(&self, permit: Permit) -> Result<TableList, Unshared> {
        let gvr = self.key.gvr();
        let request = self.key.request().ok_or(Unshared::Lasting)?;
        let response = self.client.send(request).await.map_err(|error| {
            debug!(resource = %gvr, %error, "cannot request a list of Tables");
            Unshared::Now
        })?;
        if !is_accepted(&response) {
            return Err(match is_final(response.status()) {
                true => Unshared::Lasting,
                false => Unshared::Now,
            });
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LIST_LEN_MAX).collect().await;
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(Unshared::Lasting);
            }
            Err(_) => return Err(Unshared::Now),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &head.headers {
            if HEADERS.contains(name) {
                headers.append(name, value.clone());
            }
        }
        Ok(TableList {
            number: self.number,
            begun: self.begun,
            version: version_of(&headers, &body),
            headers,
            body,
            _permit: permit,
        })
    }
}

impl Drop for TableListFetch {
    fn drop(&mut self) {
        let mut state = self.table.lock();
        let Some(entry) = state.entries.get_mut(&self.key) else {
            return;
        };
        entry
            .current
            .take_if(|current| current.number == self.number);
        entry.kept.take_if(|list| list.number == self.number);
        if entry.current.is_none() && entry.kept.is_none() {
            state.entries.remove(&self.key);
        }
    }
}

/// The version of the collection, which stands at the beginning of a Table.
fn version_of(headers: &HeaderMap, body: &[u8]) -> Option<ResourceVersion> {
    let mut head = Vec::new();
    let head_len = HEAD[0].len() + "beta1".len() + 1 + HEAD[1].len() + VERSION_LEN_MAX + 1;
    let len = u64::try_from(head_len).ok()?;
    match headers.get(CONTENT_ENCODING) {
        None => body.take(len).read_to_end(&mut head).ok()?,
        Some(_) => GzDecoder::new(body).take(len).read_to_end(&mut head).ok()?,
    };
    let rest = head.strip_prefix(HEAD[0].as_bytes())?;
    let rest = rest
        .strip_prefix(b"beta1")
        .unwrap_or(rest)
        .strip_prefix(b"\"")?;
    let rest = rest.strip_prefix(HEAD[1].as_bytes())?;
    let end = memchr::memchr(b'"', rest)?;
    let version = str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some(ResourceVersion(version))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http::HeaderValue;

    use super::*;

    fn version(body: &str) -> Option<u64> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(body.as_bytes()).unwrap();
        let mut headers = HeaderMap::new();
        let plain = version_of(&headers, body.as_bytes());
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(version_of(&headers, &gzip.finish().unwrap()), plain);
        plain.map(|version| version.0)
    }

    #[test]
    fn the_version_is_that_of_the_collection() {
        let rows =
            r#""columnDefinitions":[],"rows":[{"object":{"metadata":{"resourceVersion":"7"}}}]}"#;
        for (head, expected) in [
            (
                r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"6027"},"#,
                Some(6027),
            ),
            (
                r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"18446744073709551615","continue":"a"},"#,
                Some(u64::MAX),
            ),
            (
                r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"184467440737095516150"},"#,
                None,
            ),
            (
                r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":""},"#,
                None,
            ),
            (
                r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"#,
                None,
            ),
            (
                r#"{"kind":"List","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"#,
                None,
            ),
        ] {
            assert_eq!(version(&format!("{head}{rows}")), expected, "{head}");
        }
        assert_eq!(version(""), None);
    }
}
