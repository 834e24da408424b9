//! The steps, and what must hold after each.
//!
//! After a change of rights the gateway may answer as before until it has answered as it should, within [`DEADLINE`]; from then on only as
//! it should. What was never changed, or was answered rightly since, has no such time. What a token was worth before may count for
//! requests within [`TOKEN_MEMORY`], but open streams end. What is forwarded is upstream's to answer, and is right at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use kube_fanout::apiserver::auth::TokenUser;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::auth::{AuthStage, PATIENCE, ROOT};
use crate::model::{
    Binding, Dice, GROUPS, Model, NAME, NAMESPACES, Question, RESOURCES, Right, Subject,
    TOKEN_MEMORY, USERS,
};
use crate::streams::Stream;
use crate::transport::{Clients, TRANSPORTS, Transport, read};

/// Upper guard for what takes about a second.
const DEADLINE: Duration = Duration::from_secs(25);
const STREAMS_MAX: usize = 24;
const BINDINGS_MAX: usize = 40;
const OBJECTS_MAX: usize = 12;
const LONG_LEN: usize = 140 << 10;
const FORWARDED: &str = "kube_fanout_passthrough_requests_total";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// What a run has tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) served: usize,
    pub(crate) refused: usize,
    pub(crate) watches: usize,
    pub(crate) revoked: usize,
    pub(crate) changes: usize,
    pub(crate) objects: usize,
    pub(crate) reviews: usize,
    /// Answers that came compressed.
    pub(crate) compressed: usize,
    /// Watches over WebSocket.
    pub(crate) sockets: usize,
    /// What upstream has answered.
    pub(crate) forwarded: usize,
}

/// An answer, and how it came about.
struct Told {
    transport: Transport,
    answer: Response<Incoming>,
    /// Upstream has answered.
    is_forwarded: bool,
}

pub(crate) struct Run<'a> {
    stage: &'a AuthStage,
    dice: Dice,
    seed: u64,
    step: u64,
    model: Model,
    /// What the model says to each question: first what upstream says, then all that may be said.
    statuses: BTreeMap<Question, (u16, BTreeSet<u16>)>,
    /// What is allowed, lists and watches.
    allowed: [Vec<Question>; 2],
    /// Until when the answer may still be the one from before a change of roles.
    unrest: BTreeMap<Question, Instant>,
    changed_at: BTreeMap<Question, Instant>,
    /// Until then streams of a token may end, because its user was another one for a while.
    token_changed_at: BTreeMap<usize, Instant>,
    streams: Vec<Stream>,
    looked_at: Instant,
    objects: BTreeMap<(usize, usize), Vec<String>>,
    next_id: u64,
    clients: Clients,
    /// Requests that the gateway has forwarded.
    forwarded: f64,
    totals: Totals,
}

impl<'a> Run<'a> {
    pub(crate) async fn new(stage: &'a AuthStage, seed: u64) -> Self {
        let mut run = Self {
            stage,
            dice: Dice(seed),
            seed,
            step: 0,
            model: Model::default(),
            statuses: BTreeMap::new(),
            allowed: [Vec::new(), Vec::new()],
            unrest: BTreeMap::new(),
            changed_at: BTreeMap::new(),
            token_changed_at: BTreeMap::new(),
            streams: Vec::new(),
            looked_at: Instant::now(),
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
        // Nobody has asked: nothing is remembered that could be said instead.
        run.changed();
        run.unrest.clear();
        run.forwarded = stage.metric(FORWARDED, &[]).await;
        run
    }

    pub(crate) async fn step(&mut self) {
        self.step += 1;
        match self.dice.below(1_000) {
            0..600 => {
                let question = self.question(false);
                self.list(question).await;
            }
            600..790 => {
                let question = self.question(true);
                self.watch(question).await;
            }
            790..830 => {
                self.drop_stream();
            }
            830..950 => self.write().await,
            950..996 => {
                if self.dice.one_in(2) || self.model.bindings.is_empty() {
                    self.bind().await;
                } else {
                    self.unbind().await;
                }
                self.changed();
                // What has just changed is asked for with the next steps.
                for question in self.unsettled(true, 1) {
                    self.watch(question).await;
                }
                for question in self.unsettled(false, 3) {
                    self.list(question).await;
                }
            }
            _ => self.change_token(),
        }
        if self.model.forget() {
            self.judged();
        }
        self.look_at_streams();
    }

    /// Waits for the streams that are to end.
    pub(crate) async fn finish(mut self) -> Totals {
        while self.streams.iter().any(|stream| stream.denied_at.is_some()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.look_at_streams();
        }
        self.totals
    }

    /// Half of them are allowed.
    fn question(&mut self, is_watch: bool) -> Question {
        let allowed = &self.allowed[usize::from(is_watch)];
        if !allowed.is_empty() && self.dice.one_in(2) {
            return allowed[self.dice.below(allowed.len())];
        }
        Question {
            caller: self.dice.below(USERS),
            acts_as: self.dice.one_in(4).then(|| self.dice.below(USERS)),
            resource: self.dice.below(RESOURCES.len()),
            namespace: (!self.dice.one_in(4)).then(|| self.dice.below(NAMESPACES)),
            is_named: self.dice.one_in(4),
            is_watch,
            is_labelled: self.dice.one_in(4),
        }
    }

    async fn list(&mut self, question: Question) {
        let told = self.send(&question).await;
        let status = told.answer.status().as_u16();
        let (body, is_compressed) = read(told.answer).await;
        self.totals.compressed += usize::from(is_compressed);
        self.judge(question, status, told.is_forwarded).await;
        if status == 200 {
            let list: Value = serde_json::from_slice(&body).unwrap();
            for item in list["items"].as_array().unwrap() {
                self.judge_object(&question, item);
            }
        } else {
            self.judge_refusal(&question, &body);
        }
    }

    async fn watch(&mut self, question: Question) {
        let Told {
            transport,
            answer,
            is_forwarded,
        } = self.send(&question).await;
        let status = match (transport, answer.status()) {
            (Transport::WebSocket, StatusCode::SWITCHING_PROTOCOLS) => 200,
            (_, status) => status.as_u16(),
        };
        if status != 200 {
            let (body, _) = read(answer).await;
            if is_forwarded && transport == Transport::WebSocket && status == 400 {
                // The embedded API server does not speak it.
                return;
            }
            self.judge(question, status, is_forwarded).await;
            self.judge_refusal(&question, &body);
            return;
        }
        let mut stream = Stream::new(question, answer);
        self.judge(question, status, is_forwarded).await;
        if is_forwarded {
            // When it ends is upstream's decision.
            return;
        }
        let now = Instant::now();
        if self.statuses[&question].0 != 200 {
            stream.denied_at = Some(now);
        }
        // It shares the lease of those that were denied for a moment.
        let changed_at = self.changed_at.get(&question);
        let until = changed_at.map(|changed_at| *changed_at + DEADLINE);
        stream.may_end_until = until.max(self.token_changed_at.get(&question.caller).copied());
        self.totals.watches += 1;
        self.totals.sockets += usize::from(transport == Transport::WebSocket);
        if self.streams.len() >= STREAMS_MAX {
            self.drop_stream();
        }
        self.streams.push(stream);
    }

    /// Ends one of those that may go on. The others have to end by themselves.
    fn drop_stream(&mut self) {
        let places = 0..self.streams.len();
        let may_go_on = |place: &usize| self.streams[*place].denied_at.is_none();
        let places: Vec<_> = places.filter(may_go_on).collect();
        if !places.is_empty() {
            let place = places[self.dice.below(places.len())];
            self.streams.swap_remove(place);
        }
    }

    async fn send(&mut self, question: &Question) -> Told {
        let transports = TRANSPORTS[usize::from(question.is_watch)];
        let transport = transports[self.dice.below(transports.len())];
        let resource = RESOURCES[question.resource];
        let mut target = match question.namespace {
            None => format!("/api/v1/{resource}?"),
            Some(namespace) => format!("/api/v1/namespaces/n{namespace}/{resource}?"),
        };
        if question.is_watch {
            target.push_str("watch=1&resourceVersion=0&");
        }
        if question.is_named {
            target.push_str(&format!("fieldSelector=metadata.name%3D{NAME}&"));
        }
        if question.is_labelled {
            target.push_str("labelSelector=tier%3Da&");
        }
        let bearer = format!("Bearer {}", token(question.caller));
        let mut request = Request::builder().header("authorization", bearer);
        if let Some(user) = question.acts_as {
            request = request.header("impersonate-user", name(user));
        }
        let clients = &self.clients;
        let answer = clients.send(transport, self.stage.address, (target, request));
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        let before = self.forwarded;
        self.forwarded = self.stage.metric(FORWARDED, &[]).await;
        Told {
            transport,
            answer: answer.unwrap(),
            is_forwarded: self.forwarded > before,
        }
    }

    /// Judges whether an answer may be given.
    async fn judge(&mut self, question: Question, status: u16, is_forwarded: bool) {
        match status {
            200 => self.totals.served += 1,
            _ => self.totals.refused += 1,
        }
        self.totals.forwarded += usize::from(is_forwarded);
        let (expected, admissible) = self.statuses[&question].clone();
        let is_right = match is_forwarded {
            true => status == expected,
            false => admissible.contains(&status),
        };
        if is_right {
            self.unrest.remove(&question);
            if status != 200 && status == expected && self.dice.one_in(20) {
                self.compare_with_review(&question, expected).await;
            }
            return;
        }
        let until = self.unrest.get(&question);
        let is_excused = until.is_some_and(|until| Instant::now() < *until) && !is_forwarded;
        assert!(
            is_excused,
            "seed {} step {}: {question:?} was answered {status}, not {admissible:?}; upstream says {expected}, forwarded: {is_forwarded}",
            self.seed, self.step
        );
    }

    /// The model says what a fresh review says.
    async fn compare_with_review(&mut self, question: &Question, expected: u16) {
        if expected == 401 || question.acts_as.is_some() {
            return;
        }
        let groups = self.model.groups(question.caller).unwrap_or_default();
        let mut groups: Vec<_> = groups.iter().map(|group| format!("g{group}")).collect();
        groups.push("system:authenticated".to_owned());
        let mut attributes = json!({
            "verb": if question.is_watch { "watch" } else { "list" },
            "version": "v1",
            "resource": RESOURCES[question.resource],
        });
        if let Some(namespace) = question.namespace {
            attributes["namespace"] = json!(format!("n{namespace}"));
        }
        if question.is_named {
            attributes["name"] = json!(NAME);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": name(question.caller), "groups": groups, "resourceAttributes": attributes},
        });
        let address = self.stage.apiserver.address();
        let target = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let request = Request::post(format!("http://{address}{target}"))
            .header("authorization", format!("Bearer {ROOT}"))
            .header("content-type", "application/json")
            .body(Full::from(review.to_string()))
            .unwrap();
        let answer = self.clients.post(request).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let allowed = answer["status"]["allowed"].as_bool().unwrap();
        assert_eq!(allowed, expected == 200, "the model is wrong: {question:?}");
        self.totals.reviews += 1;
    }

    /// An object is one that was asked for.
    fn judge_object(&self, question: &Question, object: &Value) {
        let metadata = &object["metadata"];
        let is_asked = question
            .namespace
            .is_none_or(|namespace| metadata["namespace"] == format!("n{namespace}"))
            && (!question.is_named || metadata["name"] == NAME);
        assert!(
            is_asked,
            "seed {} step {}: {question:?} was answered with {metadata}",
            self.seed, self.step
        );
        let mark = metadata["annotations"]["mark"].as_str();
        if let Some(mark) = mark {
            assert_eq!(mark, RESOURCES[question.resource]);
        }
    }

    fn judge_refusal(&self, question: &Question, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        assert!(
            !text.contains("\"mark\""),
            "seed {} step {}: {question:?}: {text}",
            self.seed,
            self.step
        );
    }

    fn look_at_streams(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        for stream in streams {
            if self.look_at(&stream) {
                self.streams.push(stream);
            }
        }
        self.looked_at = Instant::now();
    }

    /// Judges what has come on a stream, and whether it goes on; says so.
    fn look_at(&mut self, stream: &Stream) -> bool {
        let (now, question) = (Instant::now(), &stream.question);
        // Looked at first: nothing comes after the end.
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
            self.judge_object(question, object);
        }
        let (seed, step) = (self.seed, self.step);
        let denied_at = stream.denied_at;
        let is_late = denied_at.is_some_and(|denied_at| now > denied_at + DEADLINE);
        assert!(
            has_ended || !is_late,
            "seed {seed} step {step}: {question:?} goes on though it is denied for {:?}; looked at {:?} ago",
            denied_at.map(|denied_at| now - denied_at),
            now - self.looked_at
        );
        if has_ended {
            let may_end = denied_at.is_some() || stream.may_end_until.is_some_and(|end| now < end);
            assert!(may_end, "seed {seed} step {step}: {question:?} has ended");
            self.totals.revoked += 1;
        }
        !has_ended
    }

    /// What the model says now.
    fn judged(&mut self) -> BTreeMap<Question, (u16, BTreeSet<u16>)> {
        let statuses = Question::all().map(|question| {
            let model = &self.model;
            (
                question,
                (model.status(&question), model.admissible(&question)),
            )
        });
        let statuses = statuses.collect();
        std::mem::replace(&mut self.statuses, statuses)
    }

    /// Notes what a change has made different.
    fn changed(&mut self) {
        self.totals.changes += 1;
        let now = Instant::now();
        let before = self.judged();
        self.allowed = [Vec::new(), Vec::new()];
        for (question, (status, admissible)) in &self.statuses {
            if *status == 200 {
                self.allowed[usize::from(question.is_watch)].push(*question);
            }
            let before = before.get(question);
            if before.map(|(before, _)| before) != Some(status) {
                self.changed_at.insert(*question, now);
            }
            let is_new = |(_, before): &(u16, BTreeSet<u16>)| !before.is_subset(admissible);
            if before.is_some_and(is_new) {
                self.unrest.insert(*question, now + DEADLINE);
            }
        }
        for stream in &mut self.streams {
            let (status, _) = self.statuses[&stream.question];
            if before[&stream.question].0 == status {
                continue;
            }
            stream.may_end_until = stream.may_end_until.max(Some(now + DEADLINE));
            stream.denied_at = match status {
                200 => None,
                _ => stream.denied_at.or(Some(now)),
            };
        }
    }

    fn unsettled(&mut self, is_watch: bool, count: usize) -> Vec<Question> {
        let all = self.unrest.keys();
        let all = all.filter(|question| question.is_watch == is_watch);
        let all: Vec<_> = all.copied().collect();
        let mut chosen = Vec::new();
        for _ in 0..count.min(all.len()) {
            chosen.push(all[self.dice.below(all.len())]);
        }
        chosen
    }

    async fn bind(&mut self) {
        if self.model.bindings.len() >= BINDINGS_MAX {
            return self.unbind().await;
        }
        let subject = match self.dice.one_in(3) {
            true => Subject::Group(self.dice.below(GROUPS)),
            false => Subject::User(self.dice.below(USERS)),
        };
        let right = match self.dice.one_in(4) {
            true => Right::Impersonate(self.dice.below(USERS)),
            false => Right::Read {
                resource: self.dice.below(RESOURCES.len()),
                list_only: self.dice.one_in(4),
                name_only: self.dice.one_in(4),
            },
        };
        let namespace = match right {
            Right::Impersonate(_) => None,
            Right::Read { .. } => (!self.dice.one_in(4)).then(|| self.dice.below(NAMESPACES)),
        };
        self.next_id += 1;
        let id = self.next_id;
        let group = "rbac.authorization.k8s.io";
        let (kind, who) = match subject {
            Subject::User(user) => ("User", name(user)),
            Subject::Group(group) => ("Group", format!("g{group}")),
        };
        let role = json!({"metadata": {"name": format!("b{id}")}, "rules": [rule(right)]});
        let binding = json!({
            "metadata": {"name": format!("b{id}")},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": format!("b{id}")},
            "subjects": [{"apiGroup": group, "kind": kind, "name": who}],
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

    /// Takes a binding away, or the role that it refers to.
    async fn unbind(&mut self) {
        let ids: Vec<u64> = self.model.bindings.keys().copied().collect();
        let id = ids[self.dice.below(ids.len())];
        let binding = self.model.bindings.remove(&id).unwrap();
        let target = match self.dice.one_in(3) {
            true => format!("{RBAC}/clusterroles/b{id}"),
            false => format!("{}/b{id}", bindings(binding.namespace)),
        };
        let answer = self.stage.ask_apiserver(ROOT, "DELETE", &target).await;
        assert_eq!(answer.status(), 200);
    }

    fn change_token(&mut self) {
        let user = self.dice.below(USERS);
        // Whoever is out comes back; one in three loses the token, others change their groups.
        if self.model.groups(user).is_some() && self.dice.one_in(3) {
            self.model.set_token(user, None);
            self.stage.apiserver.tokens().remove(&token(user));
        } else {
            let groups = (0..GROUPS).filter(|_| self.dice.one_in(2)).collect();
            self.set_token(user, groups);
        }
        self.changed();
        // The token is another user's, who may do the same.
        let until = Instant::now() + TOKEN_MEMORY;
        let own = self.streams.iter_mut();
        for stream in own.filter(|stream| stream.question.caller == user) {
            stream.may_end_until = Some(until);
        }
        self.token_changed_at.insert(user, until);
    }

    fn set_token(&mut self, user: usize, groups: Vec<usize>) {
        let names: Vec<_> = groups.iter().map(|group| format!("g{group}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let known = TokenUser::new(&name(user), &names);
        self.stage.apiserver.tokens().put(&token(user), known);
        self.model.set_token(user, Some(groups));
    }

    async fn write(&mut self) {
        let (resource, namespace) = (
            self.dice.below(RESOURCES.len()),
            self.dice.below(NAMESPACES),
        );
        let objects = self.objects.entry((resource, namespace)).or_default();
        if objects.len() >= OBJECTS_MAX {
            let name = objects.remove(0);
            let target = format!("{}/{name}", collection(resource, namespace));
            let answer = self.stage.ask_apiserver(ROOT, "DELETE", &target).await;
            assert_eq!(answer.status(), 200);
            return;
        }
        self.next_id += 1;
        let name = format!("o{}", self.next_id);
        objects.push(name.clone());
        self.create(resource, namespace, name).await;
    }

    async fn create(&mut self, resource: usize, namespace: usize, name: String) {
        let tier = ["a", "b"][self.dice.below(2)];
        let mut object = json!({"metadata": {
            "name": &name,
            "labels": {"tier": tier},
            "annotations": {"mark": RESOURCES[resource]},
        }});
        // Longer answers than this one are compressed.
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
            "resourceNames": [name(user)],
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

fn name(user: usize) -> String {
    format!("u{user}")
}

fn token(user: usize) -> String {
    format!("token-{user}")
}
