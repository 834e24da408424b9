//! A list or a watch that memory may answer, before its caller is known.

use http::{HeaderValue, Method};
use tokio::time::Instant;

use super::client_name::agent;
use super::client_request::ClientRequest;
use super::gzip::{GzipReader, gzip_reader};
use super::request_timeout::{LIMIT, RequestTimeout};
use super::resources::FillWait;
use super::watch_compression::{SECRETS, WatchReader};
use crate::protocol::audit_id;
use crate::protocol::request::{
    CacheRead, ListOptions, PathForm, ReadPlan, ResourcePath, SELECTORS_LEN_MAX, Spelling, Verb,
    WatchStart,
};
use crate::protocol::status::StatusForm;
use crate::protocol::websocket::{UpgradeRequest, WebSocketUpgrade};
use crate::resource::{Gates, Gvr, ResourceKind, ResourceVersion};
use crate::selector::LabelSelector;

/// What a list or a watch asks of memory. The later stages contain it, so it is boxed.
#[derive(Debug)]
pub(super) struct ReadRequest {
    pub(super) path: ResourcePath,
    pub(super) verb: Verb,
    /// The options that upstream would use.
    pub(super) options: ListOptions,
    /// The format of error responses; `None` if only upstream can write it.
    pub(super) status_form: Option<StatusForm>,
    pub(super) takes_gzip: bool,
    /// Who reads the watch, if it may be sent as gzip.
    pub(super) watch_reader: Option<WatchReader>,
    /// The upgrade of a watch that requests WebSocket.
    pub(super) socket: Option<WebSocketUpgrade>,
    pub(super) started: Instant,
    /// The time by which the response must have started; `None` for watches.
    pub(super) deadline: Option<Instant>,
    pub(super) audit_id: HeaderValue,
    /// The version to read instead of what the options say, so that the answer can be compared with another one.
    pub(super) at: Option<ResourceVersion>,
}

impl ReadRequest {
    /// What the request asks of memory; `None` if memory cannot answer it.
    pub(super) fn of(request: &ClientRequest, gates: Gates) -> Option<Box<Self>> {
        let (http, info) = (&request.http, &request.info);
        let path = info.resource()?;
        let verb = info.verb;
        let reads = http.method() == Method::GET && matches!(verb, Verb::List | Verb::Watch);
        let plain = path.spelling == Spelling::Clean
            && path.subresource.is_none()
            && path.form != PathForm::ProxyPrefix;
        let timeout = RequestTimeout::of(&info.query, verb);
        if !reads || !plain || timeout == RequestTimeout::Unknown {
            return None;
        }
        let socket = match UpgradeRequest::of(http.version(), http.headers()) {
            UpgradeRequest::WebSocket(upgrade)
                if verb == Verb::Watch && request.connection.can_upgrade =>
            {
                Some(upgrade)
            }
            UpgradeRequest::WebSocket(_) | UpgradeRequest::Upstream if verb == Verb::Watch => {
                return None;
            }
            // Lists ignore upgrade requests.
            UpgradeRequest::Http | UpgradeRequest::WebSocket(_) | UpgradeRequest::Upstream => None,
        };
        let mut options = ListOptions::from_query(&info.query)?;
        // The name that is authorized depends on whether the labels parse. Where only upstream knows whether they do, it authorizes.
        if options.selectors_len() > SELECTORS_LEN_MAX
            || LabelSelector::parse(&options.label_selector).is_none()
        {
            return None;
        }
        if !gates.shards {
            options.shard_selector.clear();
        }
        let gzip_reader = gzip_reader(http.headers());
        let is_plain_watch = verb == Verb::Watch && socket.is_none();
        let watch_reader = gzip_reader.filter(|_| is_plain_watch);
        let watch_reader = watch_reader.map(|reader| match reader {
            GzipReader::Client => WatchReader::Client(agent(http.headers()).into()),
            GzipReader::Gateway => WatchReader::Gateway,
        });
        // The API server compresses lists of Secrets for clients, so only those for gateways are the gateway's choice.
        let takes_gzip = gzip_reader == Some(GzipReader::Client)
            || gzip_reader.is_some() && &*path.gvr.resource != SECRETS;
        let started = Instant::now();
        Some(Box::new(Self {
            path: path.clone(),
            verb,
            options,
            status_form: info.refusal_form(),
            takes_gzip,
            watch_reader,
            socket,
            started,
            deadline: match timeout {
                RequestTimeout::Until(limit) => Some(started + limit),
                RequestTimeout::Endless | RequestTimeout::Unknown => None,
            },
            audit_id: audit_id(http.headers()),
            at: None,
        }))
    }

    /// The same request for a comparison: of the state or the events after this version, if there is one.
    pub(super) fn compared_at(&self, at: Option<ResourceVersion>) -> Box<Self> {
        let started = Instant::now();
        Box::new(Self {
            path: self.path.clone(),
            verb: self.verb,
            options: self.options.clone(),
            status_form: self.status_form,
            takes_gzip: false,
            watch_reader: None,
            socket: None,
            started,
            deadline: (self.verb == Verb::List).then(|| started + LIMIT),
            audit_id: self.audit_id.clone(),
            at,
        })
    }

    /// How long the request waits for its cache to be filled. A page or one object costs upstream little; kube-apiserver also answers
    /// these from its storage while its cache is being filled (docs/PROTOCOL.md §6.9).
    pub(super) fn fill_wait(&self) -> FillWait {
        let options = &self.options;
        let is_page = options.limit > 0 && options.field_selector.is_empty();
        let is_object = options.field_selector.starts_with("metadata.name=");
        let is_searched = !options.label_selector.is_empty();
        if self.verb == Verb::List && (is_page || is_object) && !is_searched {
            FillWait::Short
        } else {
            FillWait::Long
        }
    }

    /// The plan for a resource of this kind; `None` if upstream must answer.
    pub(super) fn plan(&self, kind: &ResourceKind) -> Option<CacheRead> {
        if self.path.namespace.is_some()
            && !kind.namespaced
            && self.path.gvr != Gvr::new("", "v1", "namespaces")
        {
            return None;
        }
        let mut read = CacheRead::decide(&self.path, &self.options, kind)?;
        if let (Some(version), ReadPlan::Watch(plan)) = (self.at, &mut read.plan)
            && !plan.has_end_marker()
        {
            plan.start = WatchStart::After(version);
        }
        Some(read)
    }
}
