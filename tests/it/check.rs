//! `kube-fanout check` against an API server and a gateway, and against servers that answer wrongly, never or without end.

mod clients;
mod files;
mod front;
mod impostors;
mod program;
mod servers;
mod stage;

use std::collections::BTreeSet;

use kube_fanout::check::{CATALOGUE, CheckLevel, check_once};
use kube_fanout::config::ClientSettings;

use stage::{client, gateway, settings};

/// Every check of the catalogue is provoked to warn or to fail, and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn every_check_can_fail_and_says_what_to_do() {
    let mut provoked = BTreeSet::new();
    provoked.extend(Box::pin(servers::ways()).await);
    provoked.extend(servers::answers().await);
    provoked.extend(servers::rights().await);
    provoked.extend(servers::features().await);
    provoked.extend(Box::pin(files::certificates()).await);
    provoked.extend(files::machine().await);
    provoked.extend(files::handover().await);
    provoked.extend(clients::ways().await);
    provoked.extend(clients::answers().await);
    provoked.extend(clients::admin().await);
    let all: BTreeSet<&str> = CATALOGUE.iter().map(|spec| spec.name).collect();
    let missing: Vec<_> = all.difference(&provoked).collect();
    assert!(missing.is_empty(), "never seen to fail: {missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_in_front_of_an_api_server_passes() {
    let apiserver = stage::apiserver().await;
    let gateway = gateway(apiserver.address()).await;
    let mut settings = settings(apiserver.address());
    settings.gateway = Some(ClientSettings {
        ..client("http", gateway.address)
    });
    settings.admin = Some(format!("http://{}/", gateway.admin).parse().unwrap());
    let report = check_once(&settings).await;
    let text = report.text(false);
    assert_ne!(report.level(), CheckLevel::Failure, "{text}");
    for (name, words) in [
        ("server-version", "Kubernetes v1."),
        ("streamed-lists", "then a bookmark"),
        ("gateway-identity", "a gateway with"),
        ("gateway-cluster", "both are cluster"),
        ("live-list", "no difference among"),
        ("live-watch", "then a bookmark of version"),
        ("live-fresh", "upstream"),
        ("admin-ready", "/readyz is answered 200"),
        ("settings", "they can be used"),
    ] {
        stage::ended(&report, name, CheckLevel::Ok, words);
    }
    // Every check has a line, also those that were skipped.
    for spec in CATALOGUE {
        let lines = text
            .lines()
            .filter(|line| line.split_whitespace().nth(1) == Some(spec.name));
        assert_eq!(lines.count(), 1, "{} in\n{text}", spec.name);
    }
    gateway.ended().await;
}
