//! Headers that name the caller, one `name: value` per line: parsing them never panics; the identity survives being written to headers
//! and parsed again; and headers with similar names do not change it.
#![no_main]

use http::header::{HeaderMap, HeaderName, HeaderValue};
use kube_fanout::auth::bearer::{self, TokenHeader};
use kube_fanout::auth::caller::BearerToken;
use kube_fanout::auth::front_proxy;
use kube_fanout::auth::impersonation::{self, ImpersonationRequest};
use kube_fanout::auth::user::User;
use kube_fanout::config::FrontProxySettings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: &[u8]| {
    let headers = parsed(lines);
    let similar = with_lookalikes(&headers);
    for token in [bearer::authorization, bearer::websocket] {
        let found = token(&headers);
        assert_eq!(token(&similar), found);
        if let TokenHeader::Token(token) = found {
            let _ = bearer::expiry(&token);
            assert!(!token.secret().is_empty() && !token.secret().contains(' '));
            assert_eq!(BearerToken::new(token.secret()), Some(token.clone()));
            let alone = HeaderMap::from_iter([(
                http::header::AUTHORIZATION,
                token.authorization().clone(),
            )]);
            assert_eq!(bearer::authorization(&alone), TokenHeader::Token(token));
        }
    }
    let settings = settings();
    let user = front_proxy::user(&settings, &headers);
    assert_eq!(front_proxy::user(&settings, &similar), user);
    if let Ok(Some(user)) = user {
        assert!(!user.name.is_empty());
        check_impersonated(&user);
    }
    let request = ImpersonationRequest::from_headers(&headers);
    assert_eq!(ImpersonationRequest::from_headers(&similar), request);
    let own = impersonation::only(&headers);
    assert_eq!(ImpersonationRequest::from_headers(&own), request);
    if let Ok(Some(request)) = request {
        assert!(request.parts.len() <= impersonation::PARTS_MAX);
        assert!(!request.user.name.is_empty());
        check_impersonated(&request.user);
    }
});

/// The API server accepts the gateway's headers for exactly this user, or the gateway does not impersonate the user.
fn check_impersonated(user: &User) {
    let Ok(headers) = impersonation::headers(user) else {
        return;
    };
    let Ok(Some(request)) = ImpersonationRequest::from_headers(&headers) else {
        // More groups than the gateway would send; the API server itself has no limit.
        return;
    };
    assert_eq!(request.user.name, user.name);
    assert_eq!(request.user.uid, user.uid);
    assert_eq!(request.user.extra, user.extra);
    for group in &user.groups {
        assert!(request.user.is_in(group), "{user:?}");
    }
    let added = [
        "system:authenticated",
        "system:unauthenticated",
        "system:serviceaccounts",
    ];
    for group in &request.user.groups {
        let is_added = added.iter().any(|added| group.starts_with(added));
        assert!(user.is_in(group) || is_added, "{user:?}");
    }
}

fn parsed(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n').take(200) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn with_lookalikes(headers: &HeaderMap) -> HeaderMap {
    let mut similar = headers.clone();
    for (name, value) in headers {
        let other = name.as_str().replace('-', "_");
        if other != name.as_str()
            && let Ok(other) = HeaderName::from_bytes(other.as_bytes())
        {
            similar.append(other, value.clone());
        }
    }
    similar
}

fn settings() -> FrontProxySettings {
    let name = HeaderName::from_static;
    FrontProxySettings {
        client_ca: "ca.pem".into(),
        allowed_names: Vec::new(),
        username_headers: vec![name("x-remote-user"), name("x-user")],
        uid_headers: vec![name("x-remote-uid")],
        group_headers: vec![name("x-remote-group")],
        extra_header_prefixes: vec!["x-remote-extra-".to_owned()],
    }
}
