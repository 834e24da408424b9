//! Status bodies, checked against recorded ones of a real API server.

use super::*;
use crate::resource::{Gvr, ResourceVersion};

#[track_caller]
fn check(status: &Status, rest: &str) {
    let expected = format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",{rest}}}\n"
    );
    assert_eq!(String::from_utf8_lossy(&status.to_json()), expected);
    assert_eq!(status.to_response().body(), &status.to_json());
    assert_eq!(status.to_response().status().as_u16(), status.code);
}

fn widgets() -> Gvr {
    Gvr::new("example.com", "v1", "widgets")
}

fn pods() -> Gvr {
    Gvr::new("", "v1", "pods")
}

#[test]
fn bodies_are_those_of_the_server() {
    for (status, rest) in [
        (
            Status::bad_request("a<b>&\u{2028}\"\\\n\x01"),
            r#""message":"a\u003cb\u003e\u0026\u2028\"\\\n\u0001","reason":"BadRequest","code":400"#,
        ),
        (
            Status::unauthorized(),
            r#""message":"Unauthorized","reason":"Unauthorized","code":401"#,
        ),
        (
            Status::unknown_resource(),
            r#""message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404"#,
        ),
        (
            Status::method_not_allowed(),
            r#""message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405"#,
        ),
        (
            Status::initializing(1),
            r#""message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429"#,
        ),
        (
            Status::internal_error("x"),
            r#""message":"Internal error occurred: x","reason":"InternalError","details":{"causes":[{"message":"x"}]},"code":500"#,
        ),
        (
            Status::timeout_too_large(ResourceVersion(999_999), ResourceVersion(19), 1),
            r#""message":"Timeout: Too large resource version: 999999, current: 19","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504"#,
        ),
    ] {
        check(&status, rest);
    }
}

#[test]
fn denials_name_user_verb_and_place() {
    let mut denied = ForbiddenAccess {
        user: "denied",
        verb: "list",
        resource: &pods(),
        subresource: "",
        namespace: "default",
        name: "",
        reason: "",
    };
    check(
        &Status::forbidden(&denied),
        r#""message":"pods is forbidden: User \"denied\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"","reason":"Forbidden","details":{"kind":"pods"},"code":403"#,
    );
    let widgets = widgets();
    denied.resource = &widgets;
    (denied.user, denied.namespace, denied.name, denied.reason) = ("<u>", "", "w", "no <rule>");
    check(
        &Status::forbidden(&denied),
        r#""message":"widgets.example.com \"w\" is forbidden: User \"\u0026lt;u\u0026gt;\" cannot list resource \"widgets\" in API group \"example.com\" at the cluster scope: no \u003crule\u003e","reason":"Forbidden","details":{"name":"w","group":"example.com","kind":"widgets"},"code":403"#,
    );
}

#[test]
fn a_stream_error_is_one_line() {
    let status = Status::expired_watch(ResourceVersion(2), ResourceVersion(69));
    assert_eq!(
        status.error_event(Encoding::Json),
        &b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"too old resource version: 2 (69)\",\"reason\":\"Expired\",\"code\":410}}\n"[..]
    );
}

#[test]
fn pretty_clients_get_indented_json() {
    let status = Status::unknown_resource();
    assert_eq!(
        status.to_pretty_json(),
        "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \"message\": \"the server could not find the requested resource\",\n  \"reason\": \"NotFound\",\n  \"details\": {},\n  \"code\": 404\n}"
    );
}

#[track_caller]
fn headers<B>(response: &Response<B>) -> [Option<&str>; 4] {
    [
        CONTENT_TYPE,
        CACHE_CONTROL,
        RETRY_AFTER,
        X_CONTENT_TYPE_OPTIONS,
    ]
    .map(|name| response.headers().get(name).map(|v| v.to_str().unwrap()))
}

#[test]
fn answers_carry_the_servers_headers() {
    let json = Some("application/json");
    let cache = Some("no-cache, private");
    let response = Status::initializing(7).to_response();
    assert_eq!(headers(&response), [json, cache, Some("7"), None]);
    let response = Status::forbidden_path("u", "get", "/x", "").to_response();
    assert_eq!(headers(&response), [json, cache, None, Some("nosniff")]);
    let text = Some("text/plain; charset=utf-8");
    let response = PlainText::not_found().to_response();
    assert_eq!(response.body(), "404 page not found\n");
    assert_eq!(headers(&response), [text, cache, None, Some("nosniff")]);
}
