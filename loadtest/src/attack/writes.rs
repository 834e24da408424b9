//! The attackers' writes, directly at the API server: they produce the events that the attack needs.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use hyper::Method;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Attack, AttackState, count};
use crate::client::Client;
use crate::recorder::now_ns;
use crate::target::Target;
use crate::writer::shape::Shape;

/// Number of labels of the pod with many labels.
const LABELS: usize = 10_000;
/// Length of the objects that stalled watches do not read, bytes.
const LONG_LEN: usize = 2_048;
const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates an object if the attack needs one, and changes it from then on.
pub(super) async fn begin(state: &Arc<AttackState>, clients: &mut JoinSet<()>) -> Result<()> {
    let attack = state.flags.attack;
    let Some(rate) = attack.size().writes else {
        return Ok(());
    };
    let now = Instant::now();
    let (collection, object) = match attack {
        Attack::Labels => (PODS, pod_with_labels()),
        Attack::Stalled => {
            let object = Shape::ConfigMap.object("attack", 0, LONG_LEN, now);
            (CONFIG_MAPS, object)
        }
        _ => (PODS, Shape::Pod { nodes: 1 }.object("attack", 0, 0, now)),
    };
    let mut client = Client::new(Target::new(&state.flags.reference, None, None)?);
    client.create(collection, object).await?;
    let state = state.clone();
    clients.spawn(async move {
        let path = format!("{collection}/attack");
        let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
        loop {
            let due = tick.tick().await;
            let answer = client.call(Method::PATCH, &path, Shape::change(due)).await;
            // A failed write is one event less.
            if answer.is_ok_and(|(status, _)| status.is_success()) {
                count(&state.counts.written);
            }
        }
    });
    Ok(())
}

fn pod_with_labels() -> Vec<u8> {
    let mut labels = String::new();
    for number in 0..LABELS {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(labels, r#"{comma}"l{number}":"v""#);
    }
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"attack","labels":{{{labels}}},"annotations":{{"at":"{}"}}}},"spec":{{"containers":[{{"name":"main","image":"pause"}}]}}}}"#,
        now_ns()
    )
    .into_bytes()
}

/// Keeps recent versions of the collection, as the server under test has them: older ones than its memory has are the API server's work.
pub(super) async fn follow_versions(state: Arc<AttackState>) {
    let mut client = Client::new(state.flags.target.clone());
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        if let Ok(list) = client.json(&format!("{PODS}?limit=1")).await
            && let Some(version) = list["metadata"]["resourceVersion"].as_str()
        {
            state.versions.push(version);
        }
    }
}
