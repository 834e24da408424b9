//! What relays on nodes are answered, who have no credentials.

use kube_fanout_testkit::apiserver::{self, Options};
use tokio::net::TcpListener;

use crate::support::auth::until;
use crate::support::client::get;
use crate::support::process::GatewayProcess;

const RELAY: &str = "/kube-fanout/relay?node=node-1";

async fn status(gateway: &GatewayProcess, path: &str) -> u16 {
    get(gateway.address, path).await.status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_is_answered_by_percentage_and_sent_away_by_a_drain() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let apiserver = apiserver::start(listener, Options::default()).unwrap();
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("relay.yaml");
    let upstream = apiserver.address();
    let configure = |percent: &str| {
        let new = path.with_extension("new");
        let text = format!(
            "apiVersion: kube-fanout.dev/v1alpha1\nkind: GatewayConfiguration\n\
             upstream: http://{upstream}\nrelayPercent: {percent}\ndrainDelay: 20s\n"
        );
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    configure("0");
    let gateway = GatewayProcess::start(&[format!("--config={}", path.display())]).await;
    assert_eq!(status(&gateway, RELAY).await, 503);
    assert_eq!(status(&gateway, "/kube-fanout/relay?node=").await, 400);

    // The place of node-1 is 0.7766: docs/HOWTO.md says how to compute it.
    for (percent, expected) in [("77.67", 200), ("77.66", 503), ("100", 200)] {
        configure(percent);
        until("the percentage holds", async || {
            status(&gateway, RELAY).await == expected
        })
        .await;
    }
    gateway.begin_drain();
    until("the drain has begun", async || {
        status(&gateway, RELAY).await == 404
    })
    .await;
}
