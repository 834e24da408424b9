//! The steps of a run, and the checks after each.
//!
//! After a change of roles the gateway may give a request's previous response for at most [`DEADLINE`], and no longer once it has given the
//! new one. All other requests must get the right response at once. After a change of a token, requests may get the response of the token's
//! previous user for [`TOKEN_MEMORY`], but open streams end. Forwarded requests get the API server's response, which is right at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use kube_fanout_testkit::apiserver::auth::TokenUser;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::support::auth::{AuthStage, ROOT};
use crate::support::random::Random;
use crate::trust::model::{
    Binding, GROUPS, Model, NAME, NAMESPACES, RESOURCES, Right, Subject, TOKEN_MEMORY, TestRequest,
    USERS,
};
use crate::trust::streams::Stream;
use crate::trust::transport::{Clients, TRANSPORTS, Transport, read};

/// An upper limit for delays that usually take about a second.
const DEADLINE: Duration = Duration::from_secs(25);
const STREAMS_MAX: usize = 24;
const BINDINGS_MAX: usize = 40;
const OBJECTS_MAX: usize = 12;
const LONG_LEN: usize = 140 << 10;
const FORWARDED: &str = "kube_fanout_passthrough_requests_total";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// How often a run did each thing, to show what it covered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) served: usize,
    pub(crate) refused: usize,
    pub(crate) watches: usize,
    pub(crate) revoked: usize,
    pub(crate) changes: usize,
    pub(crate) objects: usize,
    pub(crate) reviews: usize,
    /// Compressed responses.
    pub(crate) compressed: usize,
    /// Watches over WebSocket.
    pub(crate) websockets: usize,
    /// Requests that the gateway forwarded.
    pub(crate) forwarded: usize,
}

/// A response, with the transport it came on.
struct RoutedResponse {
    transport: Transport,
    response: Response<Incoming>,
    /// Whether the gateway forwarded the request.
    is_forwarded: bool,
}

pub(crate) struct Run<'a> {
    stage: &'a AuthStage,
    random: Random,
    seed: u64,
    step: u64,
    model: Model,
    /// The model's responses to each request: the API server's, and all that the gateway may give.
    statuses: BTreeMap<TestRequest, (u16, BTreeSet<u16>)>,
    /// The allowed requests: lists, and watches.
    allowed: [Vec<TestRequest>; 2],
    /// The requests that may still get the response from before a change of roles, and until when.
    stale_until: BTreeMap<TestRequest, Instant>,
    changed_at: BTreeMap<TestRequest, Instant>,
    /// By caller, until when the token's streams may end because the token belonged to another user.
    token_grace_until: BTreeMap<usize, Instant>,
    streams: Vec<Stream>,
    streams_checked_at: Instant,
    objects: BTreeMap<(usize, usize), Vec<String>>,
    next_id: u64,
    clients: Clients,
    /// The gateway's count of forwarded requests, after the last request.
    forwarded: f64,
    totals: Totals,
}

impl<'a> Run<'a> {
    pub(crate) async fn new(stage: &'a AuthStage, seed: u64) -> Self {
        let mut run = Self {
            stage,
            random: Random(seed),
            seed,
            step: 0,
            model: Model::default(),
            statuses: BTreeMap::new(),
            allowed: [Vec::new(), Vec::new()],
            stale_until: BTreeMap::new(),
            changed_at: BTreeMap::new(),
            token_grace_until: BTreeMap::new(),
            streams: Vec::new(),
            streams_checked_at: Instant::now(),
            objects: BTreeMap::new(),
            next_id: 0,
            clients: Clients::new(),
            forwarded: 0.0,
            totals: Totals::default(),
        };
        for user in 0..USERS {
            run.set_token(user, vec![user % GROUPS]);
        }
        for resource in 0..RESOURCES.len() {
            for namespace in 0..NAMESPACES {
                run.create(resource, namespace, NAME.to_owned()).await;
            }
        }
        for _ in 0..BINDINGS_MAX / 2 {
            run.bind().await;
        }
        // No request was sent yet, so the gateway remembers no previous response.
        run.record_changes();
        run.stale_until.clear();
        run.forwarded = stage.metric(FORWARDED, &[]).await;
        run
    }

    pub(crate) async fn step(&mut self) {
        self.step += 1;
        match self.random.below(1_000) {
            0..600 => {
                let test_request = self.random_request(false);
                self.list(test_request).await;
            }
            600..790 => {
                let test_request = self.random_request(true);
                self.watch(test_request).await;
            }
            790..830 => {
                self.drop_stream();
            }
            830..950 => self.write().await,
            950..996 => {
                if self.random.one_in(2) || self.model.bindings.is_empty() {
                    self.bind().await;
                } else {
                    self.unbind().await;
                }
                self.record_changes();
                // Send some of the requests whose response has just changed.
                for test_request in self.stale_requests(true, 1) {
                    self.watch(test_request).await;
                }
                for test_request in self.stale_requests(false, 3) {
                    self.list(test_request).await;
                }
            }
            _ => self.change_token(),
        }
        if self.model.drop_old_tokens() {
            self.update_statuses();
        }
        self.check_streams();
    }

    /// Waits for the end of the streams whose callers were denied.
    pub(crate) async fn finish(mut self) -> Totals {
        while self.streams.iter().any(|stream| stream.denied_at.is_some()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.check_streams();
        }
        self.totals
    }

    /// A random request; about half of them are allowed.
    fn random_request(&mut self, is_watch: bool) -> TestRequest {
        let allowed = &self.allowed[usize::from(is_watch)];
        if !allowed.is_empty() && self.random.one_in(2) {
            return allowed[self.random.index(allowed.len())];
        }
        TestRequest {
            caller: self.random.index(USERS),
            acts_as: self.random.one_in(4).then(|| self.random.index(USERS)),
            resource: self.random.index(RESOURCES.len()),
            namespace: (!self.random.one_in(4)).then(|| self.random.index(NAMESPACES)),
            is_named: self.random.one_in(4),
            is_watch,
            is_labelled: self.random.one_in(4),
        }
    }

    async fn list(&mut self, test_request: TestRequest) {
        let routed = self.send(&test_request).await;
        let status = routed.response.status().as_u16();
        let (body, is_compressed) = read(routed.response).await;
        self.totals.compressed += usize::from(is_compressed);
        self.check_status(test_request, status, routed.is_forwarded)
            .await;
        if status == 200 {
            let list: Value = serde_json::from_slice(&body).unwrap();
            for item in list["items"].as_array().unwrap() {
                self.check_object(&test_request, item);
            }
        } else {
            self.check_refusal(&test_request, &body);
        }
    }

    async fn watch(&mut self, test_request: TestRequest) {
        let RoutedResponse {
            transport,
            response,
            is_forwarded,
        } = self.send(&test_request).await;
        let status = match (transport, response.status()) {
            (Transport::WebSocket, StatusCode::SWITCHING_PROTOCOLS) => 200,
            (_, status) => status.as_u16(),
        };
        if status != 200 {
            let (body, _) = read(response).await;
            if is_forwarded && transport == Transport::WebSocket && status == 400 {
                // The embedded API server does not support watches over WebSocket.
                return;
            }
            self.check_status(test_request, status, is_forwarded).await;
            self.check_refusal(&test_request, &body);
            return;
        }
        let mut stream = Stream::new(test_request, response);
        self.check_status(test_request, status, is_forwarded).await;
        if is_forwarded {
            // The API server decides when a forwarded watch ends.
            return;
        }
        let now = Instant::now();
        if self.statuses[&test_request].0 != 200 {
            stream.denied_at = Some(now);
        }
        // The stream may share the lease of older streams whose caller was denied for a moment, and end with them.
        let changed_at = self.changed_at.get(&test_request);
        let until = changed_at.map(|changed_at| *changed_at + DEADLINE);
        stream.may_end_until = until.max(self.token_grace_until.get(&test_request.caller).copied());
        self.totals.watches += 1;
        self.totals.websockets += usize::from(transport == Transport::WebSocket);
        if self.streams.len() >= STREAMS_MAX {
            self.drop_stream();
        }
        self.streams.push(stream);
    }

    /// Drops a stream whose caller is allowed. The others must be ended by the gateway.
    fn drop_stream(&mut self) {
        let indices = 0..self.streams.len();
        let may_go_on = |index: &usize| self.streams[*index].denied_at.is_none();
        let indices: Vec<_> = indices.filter(may_go_on).collect();
        if !indices.is_empty() {
            let index = indices[self.random.index(indices.len())];
            self.streams.swap_remove(index);
        }
    }

    async fn send(&mut self, test_request: &TestRequest) -> RoutedResponse {
        let transports = TRANSPORTS[usize::from(test_request.is_watch)];
        let transport = transports[self.random.index(transports.len())];
        let resource = RESOURCES[test_request.resource];
        let mut target = match test_request.namespace {
            None => format!("/api/v1/{resource}?"),
            Some(namespace) => format!("/api/v1/namespaces/n{namespace}/{resource}?"),
        };
        if test_request.is_watch {
            target.push_str("watch=1&resourceVersion=0&");
        }
        if test_request.is_named {
            target.push_str(&format!("fieldSelector=metadata.name%3D{NAME}&"));
        }
        if test_request.is_labelled {
            target.push_str("labelSelector=tier%3Da&");
        }
        let bearer = format!("Bearer {}", token_of(test_request.caller));
        let mut request = Request::builder().header("authorization", bearer);
        if let Some(user) = test_request.acts_as {
            request = request.header("impersonate-user", user_name(user));
        }
        let clients = &self.clients;
        let response = clients.send(transport, self.stage.address, (target, request));
        let response = tokio::time::timeout(PATIENCE, response).await;
        let before = self.forwarded;
        self.forwarded = self.stage.metric(FORWARDED, &[]).await;
        RoutedResponse {
            transport,
            response: response.unwrap(),
            is_forwarded: self.forwarded > before,
        }
    }

    /// Checks that the gateway may give this response.
    async fn check_status(&mut self, test_request: TestRequest, status: u16, is_forwarded: bool) {
        match status {
            200 => self.totals.served += 1,
            _ => self.totals.refused += 1,
        }
        self.totals.forwarded += usize::from(is_forwarded);
        let (expected, admissible) = self.statuses[&test_request].clone();
        let is_right = match is_forwarded {
            true => status == expected,
            false => admissible.contains(&status),
        };
        if is_right {
            self.stale_until.remove(&test_request);
            if status != 200 && status == expected && self.random.one_in(20) {
                self.compare_with_review(&test_request, expected).await;
            }
            return;
        }
        let until = self.stale_until.get(&test_request);
        let may_be_stale = until.is_some_and(|until| Instant::now() < *until) && !is_forwarded;
        assert!(
            may_be_stale,
            "seed {} step {}: {test_request:?} got {status}, expected one of {admissible:?}; upstream's response is {expected}, forwarded: {is_forwarded}",
            self.seed, self.step
        );
    }

    /// Checks the model against a fresh access review.
    async fn compare_with_review(&mut self, test_request: &TestRequest, expected: u16) {
        if expected == 401 || test_request.acts_as.is_some() {
            return;
        }
        let groups = self.model.groups(test_request.caller).unwrap_or_default();
        let mut groups: Vec<_> = groups.iter().map(|group| format!("g{group}")).collect();
        groups.push("system:authenticated".to_owned());
        let mut attributes = json!({
            "verb": if test_request.is_watch { "watch" } else { "list" },
            "version": "v1",
            "resource": RESOURCES[test_request.resource],
        });
        if let Some(namespace) = test_request.namespace {
            attributes["namespace"] = json!(format!("n{namespace}"));
        }
        if test_request.is_named {
            attributes["name"] = json!(NAME);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user_name(test_request.caller), "groups": groups, "resourceAttributes": attributes},
        });
        let address = self.stage.apiserver.address();
        let target = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let request = Request::post(format!("http://{address}{target}"))
            .header("authorization", format!("Bearer {ROOT}"))
            .header("content-type", "application/json")
            .body(Full::from(review.to_string()))
            .unwrap();
        let response = self.clients.post(request).await;
        let response: Value = serde_json::from_slice(&response).unwrap();
        let allowed = response["status"]["allowed"].as_bool().unwrap();
        assert_eq!(
            allowed,
            expected == 200,
            "the model is wrong: {test_request:?}"
        );
        self.totals.reviews += 1;
    }

    /// Checks that the request selects this object.
    fn check_object(&self, test_request: &TestRequest, object: &Value) {
        let metadata = &object["metadata"];
        let is_selected = test_request
            .namespace
            .is_none_or(|namespace| metadata["namespace"] == format!("n{namespace}"))
            && (!test_request.is_named || metadata["name"] == NAME);
        assert!(
            is_selected,
            "seed {} step {}: {test_request:?} got an object that it does not select: {metadata}",
            self.seed, self.step
        );
        let mark = metadata["annotations"]["mark"].as_str();
        if let Some(mark) = mark {
            assert_eq!(mark, RESOURCES[test_request.resource]);
        }
    }

    fn check_refusal(&self, test_request: &TestRequest, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        assert!(
            !text.contains("\"mark\""),
            "seed {} step {}: {test_request:?}: {text}",
            self.seed,
            self.step
        );
    }

    fn check_streams(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        for stream in streams {
            if self.check_stream(&stream) {
                self.streams.push(stream);
            }
        }
        self.streams_checked_at = Instant::now();
    }

    /// Checks the events of a stream, and whether it may be open. Returns whether it is still open.
    fn check_stream(&mut self, stream: &Stream) -> bool {
        let (now, test_request) = (Instant::now(), &stream.request);
        // Read this before the lines: nothing is received after the end.
        let has_ended = stream.has_ended();
        for line in stream.lines().split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            let event: Value = serde_json::from_slice(line).unwrap();
            let object = &event["object"];
            if event["type"] == "BOOKMARK" || event["type"] == "ERROR" {
                continue;
            }
            self.totals.objects += 1;
            self.check_object(test_request, object);
        }
        let (seed, step) = (self.seed, self.step);
        let denied_at = stream.denied_at;
        let is_late = denied_at.is_some_and(|denied_at| now > denied_at + DEADLINE);
        assert!(
            has_ended || !is_late,
            "seed {seed} step {step}: {test_request:?} is still open {:?} after it was denied; last checked {:?} ago",
            denied_at.map(|denied_at| now - denied_at),
            now - self.streams_checked_at
        );
        if has_ended {
            let may_end = denied_at.is_some() || stream.may_end_until.is_some_and(|end| now < end);
            assert!(
                may_end,
                "seed {seed} step {step}: {test_request:?} ended although it is allowed"
            );
            self.totals.revoked += 1;
        }
        !has_ended
    }

    /// Recomputes the model's responses, and returns the previous ones.
    fn update_statuses(&mut self) -> BTreeMap<TestRequest, (u16, BTreeSet<u16>)> {
        let statuses = TestRequest::all().map(|test_request| {
            let model = &self.model;
            (
                test_request,
                (model.status(&test_request), model.admissible(&test_request)),
            )
        });
        let statuses = statuses.collect();
        std::mem::replace(&mut self.statuses, statuses)
    }

    /// Records the requests whose response a change affects.
    fn record_changes(&mut self) {
        self.totals.changes += 1;
        let now = Instant::now();
        let before = self.update_statuses();
        self.allowed = [Vec::new(), Vec::new()];
        for (test_request, (status, admissible)) in &self.statuses {
            if *status == 200 {
                self.allowed[usize::from(test_request.is_watch)].push(*test_request);
            }
            let before = before.get(test_request);
            if before.map(|(before, _)| before) != Some(status) {
                self.changed_at.insert(*test_request, now);
            }
            let is_stale = |(_, before): &(u16, BTreeSet<u16>)| !before.is_subset(admissible);
            if before.is_some_and(is_stale) {
                self.stale_until.insert(*test_request, now + DEADLINE);
            }
        }
        for stream in &mut self.streams {
            let (status, _) = self.statuses[&stream.request];
            if before[&stream.request].0 == status {
                continue;
            }
            stream.may_end_until = stream.may_end_until.max(Some(now + DEADLINE));
            stream.denied_at = match status {
                200 => None,
                _ => stream.denied_at.or(Some(now)),
            };
        }
    }

    fn stale_requests(&mut self, is_watch: bool, count: usize) -> Vec<TestRequest> {
        let all = self.stale_until.keys();
        let all = all.filter(|test_request| test_request.is_watch == is_watch);
        let all: Vec<_> = all.copied().collect();
        let mut chosen = Vec::new();
        for _ in 0..count.min(all.len()) {
            chosen.push(all[self.random.index(all.len())]);
        }
        chosen
    }

    async fn bind(&mut self) {
        if self.model.bindings.len() >= BINDINGS_MAX {
            return self.unbind().await;
        }
        let subject = match self.random.one_in(3) {
            true => Subject::Group(self.random.index(GROUPS)),
            false => Subject::User(self.random.index(USERS)),
        };
        let right = match self.random.one_in(4) {
            true => Right::Impersonate(self.random.index(USERS)),
            false => Right::Read {
                resource: self.random.index(RESOURCES.len()),
                list_only: self.random.one_in(4),
                name_only: self.random.one_in(4),
            },
        };
        let namespace = match right {
            Right::Impersonate(_) => None,
            Right::Read { .. } => (!self.random.one_in(4)).then(|| self.random.index(NAMESPACES)),
        };
        self.next_id += 1;
        let id = self.next_id;
        let group = "rbac.authorization.k8s.io";
        let (kind, subject_name) = match subject {
            Subject::User(user) => ("User", user_name(user)),
            Subject::Group(group) => ("Group", format!("g{group}")),
        };
        let role = json!({"metadata": {"name": format!("b{id}")}, "rules": [rule(right)]});
        let binding = json!({
            "metadata": {"name": format!("b{id}")},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": format!("b{id}")},
            "subjects": [{"apiGroup": group, "kind": kind, "name": subject_name}],
        });
        let roles = format!("{RBAC}/clusterroles");
        self.stage.create(&roles, &role).await;
        self.stage.create(&bindings(namespace), &binding).await;
        let binding = Binding {
            subject,
            right,
            namespace,
        };
        self.model.bindings.insert(id, binding);
    }

    /// Deletes a binding, or the role that it refers to.
    async fn unbind(&mut self) {
        let ids: Vec<u64> = self.model.bindings.keys().copied().collect();
        let id = ids[self.random.index(ids.len())];
        let binding = self.model.bindings.remove(&id).unwrap();
        let target = match self.random.one_in(3) {
            true => format!("{RBAC}/clusterroles/b{id}"),
            false => format!("{}/b{id}", bindings(binding.namespace)),
        };
        let response = self.stage.ask_apiserver(ROOT, "DELETE", &target).await;
        assert_eq!(response.status(), 200);
    }

    fn change_token(&mut self) {
        let user = self.random.index(USERS);
        // An unknown token becomes known again. Of the others one in three is removed, and the rest change their groups.
        if self.model.groups(user).is_some() && self.random.one_in(3) {
            self.model.set_token(user, None);
            self.stage.apiserver.tokens().remove(&token_of(user));
        } else {
            let groups = (0..GROUPS).filter(|_| self.random.one_in(2)).collect();
            self.set_token(user, groups);
        }
        self.record_changes();
        // The token's user may have changed without a change of rights; its streams may end all the same.
        let until = Instant::now() + TOKEN_MEMORY;
        let own = self.streams.iter_mut();
        for stream in own.filter(|stream| stream.request.caller == user) {
            stream.may_end_until = Some(until);
        }
        self.token_grace_until.insert(user, until);
    }

    fn set_token(&mut self, user: usize, groups: Vec<usize>) {
        let names: Vec<_> = groups.iter().map(|group| format!("g{group}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let known = TokenUser::new(&user_name(user), &names);
        self.stage.apiserver.tokens().put(&token_of(user), known);
        self.model.set_token(user, Some(groups));
    }

    async fn write(&mut self) {
        let (resource, namespace) = (
            self.random.index(RESOURCES.len()),
            self.random.index(NAMESPACES),
        );
        let objects = self.objects.entry((resource, namespace)).or_default();
        if objects.len() >= OBJECTS_MAX {
            let name = objects.remove(0);
            let target = format!("{}/{name}", collection(resource, namespace));
            let response = self.stage.ask_apiserver(ROOT, "DELETE", &target).await;
            assert_eq!(response.status(), 200);
            return;
        }
        self.next_id += 1;
        let name = format!("o{}", self.next_id);
        objects.push(name.clone());
        self.create(resource, namespace, name).await;
    }

    async fn create(&mut self, resource: usize, namespace: usize, name: String) {
        let tier = ["a", "b"][self.random.index(2)];
        let mut object = json!({"metadata": {
            "name": &name,
            "labels": {"tier": tier},
            "annotations": {"mark": RESOURCES[resource]},
        }});
        // Long enough for the gateway to compress lists with this object.
        if (resource, namespace, name.as_str()) == (1, 0, NAME) {
            object["data"] = json!({"long": "x".repeat(LONG_LEN)});
        }
        if RESOURCES[resource] == "pods" {
            object["spec"] = json!({"containers": [{"name": "c", "image": "i"}]});
        }
        let collection = collection(resource, namespace);
        self.stage.create(&collection, &object).await;
    }
}

fn rule(right: Right) -> Value {
    match right {
        Right::Impersonate(user) => json!({
            "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"],
            "resourceNames": [user_name(user)],
        }),
        Right::Read {
            resource,
            list_only,
            name_only,
        } => {
            let verbs = match list_only {
                true => json!(["list"]),
                false => json!(["list", "watch"]),
            };
            let mut rule = json!({
                "verbs": verbs, "apiGroups": [""], "resources": [RESOURCES[resource]],
            });
            if name_only {
                rule["resourceNames"] = json!([NAME]);
            }
            rule
        }
    }
}

fn bindings(namespace: Option<usize>) -> String {
    match namespace {
        None => format!("{RBAC}/clusterrolebindings"),
        Some(namespace) => format!("{RBAC}/namespaces/n{namespace}/rolebindings"),
    }
}

fn collection(resource: usize, namespace: usize) -> String {
    format!("/api/v1/namespaces/n{namespace}/{}", RESOURCES[resource])
}

fn user_name(user: usize) -> String {
    format!("u{user}")
}

fn token_of(user: usize) -> String {
    format!("token-{user}")
}
