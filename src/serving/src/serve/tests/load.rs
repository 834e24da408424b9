//! Other gateways ask how many watches there are.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::serve::ConnectionTable;

const LOAD: &str = "/kube-fanout/handover/load";

#[tokio::test]
async fn only_so_many_gateways_ask_for_the_load_at_a_time() {
    let mut scene = Scene::new().await;
    let permits = scene.service.load_permits.clone();
    let peers = (0..=u8::MAX).map(|last| Peer::from(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))));
    let held: Vec<_> = peers.map_while(|peer| permits.try_acquire(peer)).collect();
    assert_eq!(held.len(), 32);
    let response = scene.send(LOAD).await;
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()[RETRY_AFTER], "1");
    drop(response);
    // Permits for the load are for nothing else.
    assert_eq!(scene.get("/kube-fanout/handover").await.0, 200);
    drop(held);
    // This gateway does not compare itself.
    assert_eq!(scene.get(LOAD).await.0, 404);
    let tracked = scene
        .service
        .clone()
        .tracked(Some(ConnectionTable::default()));
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(serve(far, tracked));
    let (client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near))
        .await
        .unwrap();
    tokio::spawn(connection);
    scene.client = client;
    // Each answer gives its permit back.
    for _ in 0..100 {
        let answer = (200, r#"{"watches":0,"serving":false}"#.to_owned());
        assert_eq!(scene.get(LOAD).await, answer);
    }
}
