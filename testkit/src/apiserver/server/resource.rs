//! Answers requests for resources: reads, writes, watches and reviews.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::{Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Body, Context, Failure, Server, close_if, content_type, json_line, json_response, parse_json,
    read_body, whole,
};
use crate::apiserver::accept::Shape;
use crate::apiserver::auth::Caller;
use crate::apiserver::faults::RequestFaults;
use crate::apiserver::faults::stream::FaultyBody;
use crate::apiserver::kinds::{ObjectKey, ServedKind};
use crate::apiserver::list::List;
use crate::apiserver::object::Form;
use crate::apiserver::patch::Patch;
use crate::apiserver::query::{ListOptions, unsigned_error};
use crate::apiserver::request::{ResourceTarget, Verb};
use crate::apiserver::reviews::{Review, ReviewRequest};
use crate::apiserver::selector::Selector;
use crate::apiserver::status::{JSON, Status, page_not_found};
use crate::apiserver::store::{Action, Part, Preconditions, Write};
use crate::apiserver::watch::{Watch, WatchRequest};
use crate::apiserver::{discovery, json};

/// A request for a served kind.
struct ResourceRequest<'a> {
    context: &'a Context<'a>,
    kind: &'a ServedKind,
    kind_index: usize,
    part: Part,
    target: ResourceTarget,
    faults: RequestFaults,
}

impl Server {
    pub(super) async fn resource(
        &self,
        context: &Context<'_>,
        caller: &Caller,
        target: ResourceTarget,
        body: Incoming,
    ) -> Result<Response<Body>, Failure> {
        if let Some(review) = Review::of(&target.group, &target.version, &target.resource) {
            let faults = self.strike_review(context, review, &target).await?;
            let body = read_body(body).await?;
            let request = ReviewRequest {
                auth: &self.auth,
                counts: &self.reviews,
                sender: &caller.user,
                review,
                namespace: &target.namespace,
                object: parse_json(content_type(&context.headers), &body, &review.kind().kind)?,
            };
            return Ok(whole(review_response(&request, &faults)?));
        }
        let catalogue = self.view.store.catalogue();
        let unknown = || match discovery::is_built_in(catalogue, &target.group) {
            true => Failure::Status(Status::unknown_resource()),
            false => page_not_found().into(),
        };
        let kind_index = catalogue.index_of(&target.group, &target.version, &target.resource);
        let kind_index = kind_index.ok_or_else(unknown)?;
        let kind = catalogue.kind(kind_index);
        let part = match target.subresource.as_str() {
            "" => Part::Whole,
            "status" if kind.has_status => Part::Status,
            _ if kind.is_custom => return Err(Status::not_found(kind, &target.name).into()),
            _ => return Err(Status::unknown_resource().into()),
        };
        let is_misplaced =
            !kind.is_namespaced && !target.namespace.is_empty() && target.resource != "namespaces";
        if target.has_surplus || is_misplaced {
            return Err(unknown());
        }
        check_method(context, kind, part, &target)?;
        let faults = self.strike(context, target.verb, &kind.plural).await?;
        let request = ResourceRequest {
            context,
            kind,
            kind_index,
            part,
            target,
            faults,
        };
        let mut response = match request.target.verb {
            Verb::List => self.list(&request).await,
            Verb::Watch => self.watch(&request).await,
            Verb::Get => self.get(&request).map(whole),
            Verb::DeleteCollection => self.delete_collection(&request, body).await,
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::Other => {
                self.write(&request, body).await.map(whole)
            }
        };
        if let Err(Failure::Status(status)) = response {
            response = Ok(whole(status.to_response(context.accept.indents_errors)));
        }
        let mut response = response?;
        close_if(request.faults.closes_connection, &mut response);
        Ok(response)
    }

    /// The faults of a review, if the request can be one.
    async fn strike_review(
        &self,
        context: &Context<'_>,
        review: Review,
        target: &ResourceTarget,
    ) -> Result<RequestFaults, Failure> {
        let kind = review.kind();
        if !target.name.is_empty()
            || target.is_prefixed
            || kind.is_namespaced == target.namespace.is_empty()
        {
            return Err(Status::unknown_resource().into());
        }
        if context.method != Method::POST {
            return Err(Status::method_not_allowed().into());
        }
        self.strike(context, Verb::Create, &kind.plural).await
    }

    async fn list(&self, request: &ResourceRequest<'_>) -> Result<Response<Body>, Failure> {
        let accept = request.context.accept;
        let form = accept.form()?;
        let options = ListOptions::parse(&request.context.query)?;
        let selector = request.selector(&options)?;
        let list = List::read(&self.view, request.kind_index, &selector, &options).await?;
        if let Some(mismatch) = accept.mismatch(request.kind, Shape::List) {
            return Err(mismatch.into());
        }
        Ok(list_response(list, request.kind, form))
    }

    async fn watch(&self, request: &ResourceRequest<'_>) -> Result<Response<Body>, Failure> {
        let context = request.context;
        if context.headers.contains_key(UPGRADE) {
            let message = "this API server does not upgrade connections";
            return Err(Status::bad_request(message).into());
        }
        let form = context.accept.form()?;
        let options = ListOptions::parse(&context.query)?;
        let selector = request.selector(&options)?;
        let is_empty = context
            .accept
            .mismatch(request.kind, Shape::Object)
            .is_some();
        let group = Arc::clone(&self.watches[request.kind_index].lock());
        let watch = WatchRequest {
            kind_index: request.kind_index,
            selector,
            form,
            options,
            is_prefixed: request.target.is_prefixed,
        };
        let random = self.random.lock().next();
        let watch = Watch::open(Arc::clone(&self.view), group, watch, random).await?;
        let faults = &request.faults;
        let body = match &faults.only {
            Some(None) => Some(Bytes::new()),
            Some(Some(status)) => Some(status.error_event()),
            // As in kube-apiserver, the stream ends where an event cannot be converted.
            None if is_empty => Some(Bytes::new()),
            None => None,
        };
        let mut response = match body {
            Some(body) => whole(Response::new(body)),
            None => {
                let lines = watch.into_stream().map(|line| Ok(Frame::data(line)));
                let body = StreamBody::new(lines).boxed_unsync();
                Response::new(match (faults.cut_after, faults.injected) {
                    (None, None) => body,
                    (cut_after, injected) => {
                        FaultyBody::new(body, cut_after, injected).boxed_unsync()
                    }
                })
            }
        };
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        Ok(response)
    }

    fn get(&self, request: &ResourceRequest<'_>) -> Result<Response<Bytes>, Failure> {
        let form = request.context.accept.form()?;
        let version = request.context.query.first("resourceVersion");
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(Status::untyped(unsigned_error(version)).into());
        }
        let object = self.view.store.stored(request.kind_index, &request.key())?;
        if let Some(mismatch) = request.context.accept.mismatch(request.kind, Shape::Object) {
            return Err(mismatch.into());
        }
        Ok(json_line(StatusCode::OK, object.body(form).to_vec()))
    }

    async fn write(
        &self,
        request: &ResourceRequest<'_>,
        body: Incoming,
    ) -> Result<Response<Bytes>, Failure> {
        let context = request.context;
        let form = context.accept.form()?;
        let body = read_body(body).await?;
        let write = request.write(&body)?;
        let answer = self.view.store.write(write)?;
        let is_status = answer.starts_with(br#"{"kind":"Status","#);
        let answer = match (form, context.accept.mismatch(request.kind, Shape::Object)) {
            (Form::Whole, _) => answer,
            _ if is_status => answer,
            // The write is kept even if its answer cannot be converted.
            (_, Some(mismatch)) => return Err(mismatch.into()),
            (Form::Metadata(version), None) => json::partial(&answer, version),
        };
        let code = if request.target.verb == Verb::Create {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Ok(json_line(code, answer.to_vec()))
    }

    async fn delete_collection(
        &self,
        request: &ResourceRequest<'_>,
        body: Incoming,
    ) -> Result<Response<Body>, Failure> {
        let form = request.context.accept.form()?;
        let options = ListOptions::parse(&request.context.query)?;
        let selector = request.selector(&options)?;
        let body = read_body(body).await?;
        let target = request.write(&body)?;
        let (items, version) = self.view.store.delete_collection(&target, &selector)?;
        if let Some(mismatch) = request.context.accept.mismatch(request.kind, Shape::List) {
            return Err(mismatch.into());
        }
        let list = List {
            version,
            items,
            continue_token: String::new(),
            remaining: None,
        };
        Ok(list_response(list, request.kind, form))
    }
}

fn review_response(
    request: &ReviewRequest<'_>,
    faults: &RequestFaults,
) -> Result<Response<Bytes>, Status> {
    let answer: Bytes = [&*request.answer()?, b"\n"].concat().into();
    let answer = match faults.nonsense {
        Some(nonsense) => nonsense.instead_of(&answer, request.review),
        None => answer,
    };
    let mut response = json_response(StatusCode::CREATED, answer.to_vec());
    close_if(faults.closes_connection, &mut response);
    Ok(response)
}

impl ResourceRequest<'_> {
    fn namespace(&self) -> &str {
        match self.kind.is_namespaced {
            true => &self.target.namespace,
            false => "",
        }
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), &self.target.name)
    }

    fn selector(&self, options: &ListOptions) -> Result<Selector, Status> {
        let (labels, fields) = (&options.label_selector, &options.field_selector);
        let selector = Selector::parse(self.kind, self.namespace(), labels, fields)?;
        match self.target.name.as_str() {
            "" => Ok(selector),
            name => selector.with_name(name),
        }
    }

    /// The write that the request asks for.
    fn write(&self, body: &[u8]) -> Result<Write, Status> {
        let content_type = content_type(&self.context.headers);
        refuse_dry_run(self.context.query.all("dryRun"))?;
        let action = match self.target.verb {
            Verb::Create => Action::Create(object(self.kind, content_type, body)?),
            Verb::Update => Action::Update(object(self.kind, content_type, body)?),
            Verb::Patch => Action::Patch(Patch::decode(self.kind, content_type, body)?),
            Verb::Delete | Verb::DeleteCollection => {
                let options = DeleteOptions::parse(body)?;
                Action::Delete(options.preconditions.unwrap_or_default())
            }
            Verb::Get | Verb::List | Verb::Watch | Verb::Other => {
                return Err(Status::method_not_allowed());
            }
        };
        Ok(Write {
            kind_index: self.kind_index,
            key: self.key(),
            part: self.part,
            action,
        })
    }
}

/// Refuses methods that a kind does not have.
fn check_method(
    context: &Context<'_>,
    kind: &ServedKind,
    part: Part,
    target: &ResourceTarget,
) -> Result<(), Status> {
    let has_name = !target.name.is_empty();
    let is_placed = !kind.is_namespaced || !target.namespace.is_empty();
    let is_whole = part == Part::Whole;
    let is_legal = context.method != Method::HEAD
        && match target.verb {
            Verb::List | Verb::Watch => true,
            Verb::Get | Verb::Update | Verb::Patch => has_name && is_placed,
            Verb::Create => !has_name && is_placed && is_whole,
            Verb::Delete | Verb::DeleteCollection => is_placed && is_whole,
            Verb::Other => false,
        };
    match is_legal {
        true => Ok(()),
        false => Err(Status::method_not_allowed()),
    }
}

/// The object in a body.
fn object(kind: &ServedKind, content_type: &str, body: &[u8]) -> Result<Value, Status> {
    let object = parse_json(content_type, body, &kind.kind)?;
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (name, version) = (text("kind"), text("apiVersion"));
    let (wanted, wanted_version) = (&kind.kind, kind.api_version());
    // Only built-in kinds may leave them out.
    let fits = |text: &str, wanted: &str| text == wanted || (text.is_empty() && !kind.is_custom);
    if !fits(name, wanted) || !fits(version, &wanted_version) {
        return Err(Status::bad_request(format!(
            "{name} in version {version:?} cannot be handled as a {wanted} in version {wanted_version:?}"
        )));
    }
    Ok(object)
}

/// The options of a deletion that are used.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DeleteOptions {
    kind: String,
    dry_run: Option<Vec<String>>,
    preconditions: Option<Preconditions>,
}

impl DeleteOptions {
    fn parse(body: &[u8]) -> Result<Self, Status> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let options: Self = serde_json::from_slice(body).map_err(|fault| {
            Status::bad_request(format!(
                "couldn't get version/kind; json parse error: {fault}"
            ))
        })?;
        if !matches!(options.kind.as_str(), "" | "DeleteOptions") {
            let kind = options.kind;
            return Err(Status::bad_request(format!("{kind} is no DeleteOptions")));
        }
        refuse_dry_run(options.dry_run.iter().flatten().map(String::as_str))?;
        Ok(options)
    }
}

/// Writes are made or refused, never only checked.
fn refuse_dry_run<'a>(mut values: impl Iterator<Item = &'a str>) -> Result<(), Status> {
    match values.find(|value| !value.is_empty()) {
        None => Ok(()),
        Some(_) => Err(Status::bad_request("dry runs are not supported")),
    }
}

/// A list's response. Its body is made while it is sent, unless it is short.
fn list_response(list: List, kind: &ServedKind, form: Form) -> Response<Body> {
    let mut pieces = list.pieces(kind, form);
    let (first, second) = (pieces.next().unwrap_or_default(), pieces.next());
    let mut response = match second {
        None => whole(Response::new(first)),
        Some(second) => {
            let pieces = [first, second].into_iter().chain(pieces);
            let frames = pieces.map(|piece| Ok(Frame::data(piece)));
            Response::new(StreamBody::new(futures::stream::iter(frames)).boxed_unsync())
        }
    };
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
