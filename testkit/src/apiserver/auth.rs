//! Authentication and authorization with kube-apiserver's rules. Without options every request is allowed.

mod bootstrap;
mod certificates;
mod cluster;
mod credentials;
mod impersonation;
mod node;
mod rbac;
mod tokens;
mod user;
mod webhook;

use std::sync::Arc;

use bytes::Bytes;
use http::header::X_CONTENT_TYPE_OPTIONS;
use http::{HeaderMap, HeaderValue, Response};
use parking_lot::RwLock;
use rustls_pki_types::CertificateDer;

use super::kinds::qualified;
use super::query::Query;
use super::request::{ResourceTarget, Target, Verb};
use super::status::{Details, Status};
use super::store::Store;
use certificates::{CertificateAuthorities, FrontProxies};
use cluster::ClusterObjects;
use rbac::Policy;

pub use certificates::{AuthError, FrontProxy};
pub(super) use rbac::Rule;
pub use tokens::{PodBinding, TokenFileError, TokenUser, Tokens};
pub use user::User;
pub(super) use user::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED};
pub use webhook::{Denial, Webhook};

/// kube-apiserver's audience for tokens that name none.
const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How callers are authenticated and authorized.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// Users by bearer token; may be changed while the server runs.
    pub tokens: Tokens,
    /// Whether a request without credentials is `system:anonymous`; otherwise it gets 401.
    pub anonymous: bool,
    /// What decides whether a request is allowed.
    pub authorization: AuthorizerKind,
    /// The server's audiences.
    pub audiences: Vec<String>,
    /// Authorities of client certificates. The TLS configuration must request certificates, too.
    pub client_ca: Vec<CertificateDer<'static>>,
    /// The front proxies that may name users in headers.
    pub front_proxy: Option<FrontProxy>,
}

/// What decides whether a request is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizerKind {
    /// The rules of nodes, and the roles and bindings in the store.
    #[default]
    Rbac,
    /// Everything is allowed.
    AlwaysAllow,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self {
            tokens: Tokens::default(),
            anonymous: true,
            authorization: AuthorizerKind::default(),
            audiences: vec![AUDIENCE.to_owned()],
            client_ca: Vec::new(),
            front_proxy: None,
        }
    }
}

/// Access that an authorizer decides on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Resource(ResourceAccess),
    Path { verb: String, path: String },
}

/// Access to resources. Empty fields do not restrict it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceAccess {
    pub(super) verb: String,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) subresource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The field selector as the client wrote it.
    pub(super) field_selector: String,
}

/// The rules of a user in a namespace.
pub(super) struct UserRules {
    pub(super) rules: Vec<Rule>,
    /// Why these are not all; empty if they are.
    pub(super) unresolved: &'static str,
}

/// A decision, with the reason that kube-apiserver gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) is_allowed: bool,
    pub(super) reason: String,
}

/// A request's credentials.
#[derive(Clone, Copy)]
pub(super) struct Credentials<'a> {
    pub(super) headers: &'a HeaderMap,
    /// The client's certificates, its own first.
    pub(super) certificates: &'a [CertificateDer<'static>],
}

/// The caller of an admitted request.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) user: User,
    /// Whether it showed no credentials: then its HTTP/2 connection is closed.
    pub(super) is_unknown: bool,
}

/// Why a request is not admitted.
#[derive(Debug)]
pub(super) struct Rejection {
    pub(super) status: Status,
    pub(super) is_unknown: bool,
}

/// Authenticates and authorizes.
#[derive(Debug)]
pub(super) struct Auth {
    /// `None` if requests are not checked at all.
    options: Option<AuthOptions>,
    tokens: Tokens,
    policy: Arc<RwLock<Policy>>,
    objects: Arc<RwLock<ClusterObjects>>,
    webhook: Webhook,
    client_authorities: Option<CertificateAuthorities>,
    front_proxies: Option<FrontProxies>,
}

impl Auth {
    /// With RBAC, writes the default roles to the store, and follows its roles and bindings, and what tokens and nodes depend on.
    pub(super) fn new(options: Option<AuthOptions>, store: &Store) -> Result<Self, AuthError> {
        let policy = Arc::new(RwLock::new(Policy::default()));
        let mut auth = Self {
            tokens: Tokens::default(),
            policy: Arc::clone(&policy),
            objects: Arc::default(),
            webhook: Webhook::default(),
            client_authorities: None,
            front_proxies: None,
            options: None,
        };
        let Some(options) = options else {
            return Ok(auth);
        };
        if options.authorization == AuthorizerKind::Rbac {
            rbac::follow(store, policy);
            cluster::follow(store, Arc::clone(&auth.objects));
            bootstrap::write(store);
        }
        if !options.client_ca.is_empty() {
            auth.client_authorities = Some(CertificateAuthorities::new(&options.client_ca)?);
        }
        if let Some(proxy) = &options.front_proxy {
            auth.front_proxies = Some(FrontProxies::new(proxy)?);
        }
        auth.tokens = options.tokens.clone();
        auth.options = Some(options);
        Ok(auth)
    }

    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub(super) fn webhook(&self) -> &Webhook {
        &self.webhook
    }

    fn audiences(&self) -> &[String] {
        self.options
            .as_ref()
            .map_or(&[], |options| &options.audiences)
    }

    /// The user of a token, and the audiences of those asked for that it is valid for.
    pub(super) fn review_token(
        &self,
        token: &str,
        asked: &[String],
    ) -> Option<(User, Vec<String>)> {
        let own = self.audiences();
        let asked = if asked.is_empty() { own } else { asked };
        let (user, audiences) = self.tokens.user(token, own, asked)?;
        let is_bound = self.has_bound(&user);
        is_bound.then(|| (user.authenticated(), audiences))
    }

    /// Whether the pod and the service account exist that a token is bound to. Without RBAC, objects are not followed.
    fn has_bound(&self, user: &User) -> bool {
        !self.is_rbac() || self.objects.read().has_bound(user)
    }

    fn is_rbac(&self) -> bool {
        let options = self.options.as_ref();
        options.is_some_and(|options| options.authorization == AuthorizerKind::Rbac)
    }

    /// Decides whether a user may do something.
    pub(super) fn authorize(&self, user: &User, access: &Access) -> Decision {
        let allowed = Decision {
            is_allowed: true,
            reason: String::new(),
        };
        if !self.is_rbac() || user.is_in(MASTERS) {
            return allowed;
        }
        if let Some(denied) = self.webhook.denies(user, access) {
            return denied;
        }
        if node::node_of(user).is_some_and(|node| node::allows(node, access, &self.objects.read()))
        {
            return allowed;
        }
        self.policy.read().decide(user, access)
    }

    /// The rules of a user in a namespace, as far as the authorizers can tell them.
    pub(super) fn rules(&self, user: &User, namespace: &str) -> UserRules {
        let unresolved = if self.webhook.is_configured() {
            "webhook authorizer does not support user rule resolution"
        } else if node::node_of(user).is_some() {
            "node authorizer does not support user rule resolution"
        } else {
            ""
        };
        let rules = match self.is_rbac() {
            true => self.policy.read().rules_of(user, namespace),
            false => Rule::everything(),
        };
        UserRules { rules, unresolved }
    }

    /// Authenticates and authorizes a request, in kube-apiserver's order (docs/PROTOCOL.md §0).
    pub(super) fn admit(
        &self,
        credentials: Credentials<'_>,
        access: &Access,
    ) -> Result<Caller, Rejection> {
        let Some(options) = &self.options else {
            return Ok(Caller {
                user: User::anonymous(),
                is_unknown: false,
            });
        };
        let Some(sender) = self.authenticate(credentials, options.anonymous) else {
            return Err(Rejection {
                status: Status::new(401, "Unauthorized", "Unauthorized"),
                is_unknown: true,
            });
        };
        let is_unknown = sender.name == ANONYMOUS || sender.is_in(UNAUTHENTICATED);
        let reject = |status| Rejection { status, is_unknown };
        let user = self
            .impersonated(&sender, credentials.headers)
            .map_err(reject)?;
        let user = user.unwrap_or(sender);
        let decision = self.authorize(&user, access);
        if !decision.is_allowed {
            return Err(reject(denied(&user, access, &decision.reason)));
        }
        Ok(Caller { user, is_unknown })
    }
}

impl Access {
    /// The access that a request needs.
    pub(super) fn of(method: &http::Method, target: &Target, query: &Query) -> Self {
        match target {
            Target::Path(path) => Self::Path {
                verb: method.as_str().to_ascii_lowercase(),
                path: path.clone(),
            },
            Target::Resource(target) => Self::Resource(ResourceAccess::of(target, query)),
        }
    }
}

impl ResourceAccess {
    fn of(target: &ResourceTarget, query: &Query) -> Self {
        Self {
            verb: target.verb.as_str().to_owned(),
            group: target.group.clone(),
            resource: target.resource.clone(),
            subresource: target.subresource.clone(),
            namespace: target.namespace.clone(),
            name: target.authorized_name(query),
            field_selector: if matches!(target.verb, Verb::List | Verb::Watch) {
                query.first("fieldSelector").to_owned()
            } else {
                String::new()
            },
        }
    }
}

/// 403 (docs/PROTOCOL.md §6.7).
fn denied(user: &User, access: &Access, reason: &str) -> Status {
    let reason = match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let access = match access {
        Access::Path { verb, path } => {
            let cause = html_escaped(&format!("User {:?} cannot {verb} path {path:?}", user.name));
            let message = format!("forbidden: {cause}{reason}");
            return Status::new(403, "Forbidden", message).with(Details::default());
        }
        Access::Resource(access) => access,
    };
    let resource = match access.subresource.as_str() {
        "" => access.resource.clone(),
        subresource => format!("{}/{subresource}", access.resource),
    };
    let scope = match access.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let cause = html_escaped(&format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}",
        user.name, access.verb, access.group
    ));
    let mut subject = qualified(&access.resource, &access.group);
    if !access.name.is_empty() {
        subject += &format!(" {:?}", access.name);
    }
    let message = format!("{subject} is forbidden: {cause}{reason}");
    Status::new(403, "Forbidden", message).with(Details {
        name: access.name.clone(),
        group: access.group.clone(),
        kind: access.resource.clone(),
        ..Details::default()
    })
}

fn html_escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// 500 for a path that cannot be read, from before all other checks.
pub(super) fn unreadable_path(uri: &str) -> Response<Bytes> {
    let text = format!(
        "Internal Server Error: {uri:?}: failed to create RequestInfo: unable to determine kind and namespace from url, {uri}\n"
    );
    let mut response = Response::new(Bytes::from(html_escaped(&text)));
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
