//! From settings to the guard that tells callers apart, and what it means for everything else.

use tracing::{info, warn};

use crate::auth::guard::{Guard, GuardSettings, Mode};
use crate::cli::word_of;
use crate::config::{AuthMode, AuthSettings};
use crate::passthrough::ProxyHeaders;
use crate::upstream::client::Identity;

/// The guard of these settings; `None` where callers are not told apart.
pub(super) fn guard(settings: &AuthSettings) -> Option<Guard> {
    let mode = match settings.mode {
        AuthMode::SelfCheck => Mode::SelfCheck,
        AuthMode::Review => Mode::Review,
        AuthMode::Rbac => Mode::Rbac,
        AuthMode::None => return None,
    };
    Some(Guard::new(GuardSettings {
        mode,
        allow_ttl: settings.allow_ttl,
        deny_ttl: settings.deny_ttl,
        reauthorize_interval: settings.reauthorize_interval,
        reauthorize_grace: settings.reauthorize_grace,
    }))
}

/// Under whose name requests are forwarded that do not say so themselves.
pub(super) const fn forwarding_identity(mode: AuthMode) -> Identity {
    match mode {
        AuthMode::SelfCheck | AuthMode::Review | AuthMode::Rbac => Identity::Caller,
        AuthMode::None => Identity::Gateway,
    }
}

/// The headers by which front proxies vouch for users.
pub(super) fn proxy_headers(settings: &AuthSettings) -> ProxyHeaders {
    let Some(proxy) = &settings.front_proxy else {
        return ProxyHeaders::default();
    };
    let names = [
        &proxy.username_headers,
        &proxy.uid_headers,
        &proxy.group_headers,
    ];
    ProxyHeaders {
        names: names.into_iter().flatten().cloned().collect(),
        prefixes: proxy.extra_header_prefixes.clone(),
    }
}

/// Says at start who decides what callers may do.
pub(super) fn report(settings: &AuthSettings) {
    if settings.mode == AuthMode::None {
        warn!(
            "callers are not told apart (--auth none): everybody acts as the gateway does upstream"
        );
        return;
    }
    info!(
        auth = word_of(settings.mode),
        anonymous = settings.anonymous,
        client_certificates = settings.client_ca.is_some(),
        front_proxies = settings.front_proxy.is_some(),
        reauthorize_interval = ?settings.reauthorize_interval,
        "callers are authenticated and authorized; what is forwarded, upstream decides"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_without_authentication_does_everybody_act_as_the_gateway() {
        for mode in [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac] {
            assert_eq!(forwarding_identity(mode), Identity::Caller);
            assert!(guard(&AuthSettings::of_mode(mode)).is_some());
        }
        assert_eq!(forwarding_identity(AuthMode::None), Identity::Gateway);
        assert!(guard(&AuthSettings::of_mode(AuthMode::None)).is_none());
    }
}
