//! Tests of requests for the serving rules.

use std::net::Ipv4Addr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};

use super::*;
use crate::metrics::Metrics;

struct Stage(ServingControl);

impl Stage {
    fn new() -> Self {
        let metrics = Metrics::new().unwrap();
        Self(ServingControl::new(
            ServingRules::default(),
            metrics.serving(),
        ))
    }

    /// Status and text of the response to a request from this address.
    async fn ask(&self, from: [u8; 4], method: &str, query: &str, body: &str) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/serving{query}"))
            .header("host", "localhost:9090")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap();
        let mut visit = Visit::of(&request, Ipv4Addr::from(from).into(), None, None);
        let response = answer(request, &self.0, &mut visit).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

const HERE: [u8; 4] = [127, 0, 0, 1];

#[tokio::test(start_paused = true)]
async fn rules_that_are_put_are_in_force_until_their_end_or_their_deletion() {
    let stage = Stage::new();
    let (code, text) = stage.ask(HERE, "PUT", "?for=10m", "passthrough").await;
    assert_eq!(code, 200, "{text}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, text) = stage.ask(HERE, "GET", "", "").await;
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["current"]["mode"], "passthrough");
    assert_eq!(shown["configured"]["mode"], "rules");
    assert_eq!(shown["secondsLeft"], 599.0);
    let (code, text) = stage.ask(HERE, "DELETE", "", "").await;
    assert_eq!((code, text.contains("passthrough")), (200, false), "{text}");
}

#[tokio::test]
async fn a_change_without_an_end_or_a_meaning_is_refused_and_changes_nothing() {
    let stage = Stage::new();
    for (query, body, reason) in [
        ("", "passthrough", "say how long"),
        ("?for=25h", "passthrough", "at most 24h"),
        ("?for=0s", "passthrough", "at most 24h"),
        ("?ttl=10m", "passthrough", "unknown parameter"),
        ("?for=10m", "", "holds no rules"),
        ("?for=10m", "rules: [{percent: 200}]", "from 0 to 100"),
    ] {
        let (code, text) = stage.ask(HERE, "PUT", query, body).await;
        assert_eq!(code, 400, "{query} {body}");
        assert!(text.contains(reason), "{text}");
    }
    let long = "x".repeat(RULES_LEN_MAX + 1);
    assert_eq!(stage.ask(HERE, "PUT", "?for=1m", &long).await.0, 413);
    assert_eq!(stage.ask(HERE, "POST", "", "").await.0, 405);
    let elsewhere = stage
        .ask([192, 0, 2, 7], "PUT", "?for=10m", "passthrough")
        .await;
    assert!(matches!(elsewhere.0, 401 | 403), "{elsewhere:?}");
    assert_eq!(stage.0.state().current(), &ServingRules::default());
}
