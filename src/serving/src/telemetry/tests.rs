//! Tests of spans: what they may hold, and with the feature `otlp` what a collector gets.

use super::*;

#[cfg(feature = "otlp")]
mod collector;

#[test]
fn an_attribute_is_bounded_whatever_a_client_asks_for() {
    assert_eq!(attribute("pods.v1".to_owned()), "pods.v1");
    let long = attribute("é".repeat(10_000));
    assert!(long.len() <= ATTRIBUTE_LEN_MAX && long.len() > ATTRIBUTE_LEN_MAX - 2);
}

#[test]
fn without_a_collector_spans_do_not_exist_and_traceparent_stays() {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", "00-aa-bb-01".parse().unwrap());
    let span = request_span("list", || panic!("nobody needs it"), &headers);
    assert!(span.is_disabled());
    record_outcome(&span, http::StatusCode::OK);
    propagate(&span, &mut headers);
    assert_eq!(headers["traceparent"], "00-aa-bb-01");
}
