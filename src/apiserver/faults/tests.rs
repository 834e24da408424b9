//! Tests that orders apply to the matching requests, and as often as ordered.

use super::*;

fn ordered(orders: &[&str]) -> Faults {
    let mut faults = Faults::default();
    for order in orders {
        faults.order(serde_json::from_str(order).unwrap()).unwrap();
    }
    faults
}

#[test]
fn a_refusal_strikes_its_verb_and_resource_so_often() {
    let mut faults = ordered(&[
        r#"{"fault":{"refuse":{"code":429,"retryAfterSeconds":7}},"verb":"list","resource":"pods","count":2}"#,
    ]);
    assert_eq!(
        faults.on_request(Verb::Watch, "pods"),
        RequestFate::default()
    );
    assert_eq!(
        faults.on_request(Verb::List, "nodes"),
        RequestFate::default()
    );
    let codes: Vec<_> = (0..3)
        .map(|_| {
            faults
                .on_request(Verb::List, "pods")
                .refusal
                .map(|refusal| refusal.code)
        })
        .collect();
    assert_eq!(codes, [Some(429), Some(429), None]);
    assert_eq!(faults.counts().refused, 2);
}

#[test]
fn faults_of_different_sorts_strike_together_and_of_one_sort_in_turn() {
    let mut faults = ordered(&[
        r#"{"fault":{"cutWatch":{"afterBytes":10}}}"#,
        r#"{"fault":{"cutWatch":{"afterBytes":20}}}"#,
        r#"{"fault":"garbageFrame"}"#,
        r#"{"fault":{"delay":{"delayMs":5}}}"#,
        r#"{"fault":"closeConnection","verb":"watch"}"#,
    ]);
    let fate = faults.on_request(Verb::Watch, "pods");
    assert_eq!(
        fate,
        RequestFate {
            delay: Some(Duration::from_millis(5)),
            refusal: None,
            close_connection: true,
            break_off: false,
            nonsense: None,
            only: None,
            stream: StreamFate {
                cut_after: Some(10),
                inject: Some(InjectedFrame::Garbage)
            },
        }
    );
    assert_eq!(
        faults.on_request(Verb::Watch, "pods").stream.cut_after,
        Some(20)
    );
    assert_eq!(
        faults.on_request(Verb::Watch, "pods"),
        RequestFate::default()
    );
}

#[test]
fn orders_that_act_at_once_are_handed_back() {
    let mut faults = Faults::default();
    let mut order = |text| faults.order(serde_json::from_str(text).unwrap());
    assert_eq!(
        order(r#"{"fault":"compact","resource":"pods"}"#),
        Ok(FaultEffect::Compact(Some("pods".into())))
    );
    assert_eq!(
        order(r#"{"fault":"endWatches"}"#),
        Ok(FaultEffect::EndWatches(None))
    );
    order(r#"{"fault":{"refuse":{"code":500}}}"#).unwrap();
    order(r#"{"fault":"clear"}"#).unwrap();
    assert_eq!(faults.on_request(Verb::Get, "pods"), RequestFate::default());
}

#[test]
fn orders_beyond_bounds_are_refused() {
    let mut faults = Faults::default();
    let mut order = |text| {
        faults
            .order(serde_json::from_str(text).unwrap())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        order(r#"{"fault":{"refuse":{"code":418}}}"#),
        "code 418 is not one of [400, 401, 403, 404, 405, 406, 410, 422, 429, 500, 502, 503, 504]"
    );
    assert_eq!(
        order(r#"{"fault":{"delay":{"delayMs":60001}}}"#),
        "delayMs is more than 60000"
    );
    assert!(serde_json::from_str::<FaultOrder>(r#"{"fault":"compact","unknown":1}"#).is_err());
}

#[test]
fn a_refusal_carries_its_retry_after() {
    assert_eq!(
        String::from_utf8_lossy(&refusal(429, 7).to_json()).trim_end(),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429}"#
    );
}

#[test]
fn an_error_event_is_all_that_a_watch_sends() {
    let mut faults = ordered(&[
        r#"{"fault":{"errorEvent":{"code":500,"isCoded":false}}}"#,
        r#"{"fault":"emptyWatch"}"#,
    ]);
    assert_eq!(
        faults.on_request(Verb::List, "pods"),
        RequestFate::default()
    );
    let mut sent = || {
        let only = faults.on_request(Verb::Watch, "pods").only.unwrap();
        String::from_utf8_lossy(&only.bytes(None)).into_owned()
    };
    let error = sent();
    assert!(error.starts_with(r#"{"type":"ERROR","object":{"kind":"Status""#));
    assert!(error.contains(r#""reason":"InternalError""#) && error.contains(r#""code":0"#));
    assert_eq!(sent(), "");
}
