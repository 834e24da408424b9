//! What requests tell about the servers that they go to.

use super::*;

fn several() -> Endpoints {
    let endpoints = Endpoints::new(vec!["a:1".to_owned(), "b:2".to_owned()], 0);
    for index in [0, 1] {
        let uid = Some("uid".to_owned());
        endpoints.probed(index, ProbeOutcome::Identified(uid));
    }
    endpoints.start();
    endpoints
}

fn due(endpoints: &Endpoints) -> Vec<usize> {
    endpoints.due(EndpointMask::default())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_until_a_request_is_given_up_is_checked_at_once() {
    let endpoints = several();
    assert!(due(&endpoints).is_empty());
    let (given_up, answered) = (
        endpoints.waiting_for(1, false),
        endpoints.waiting_for(0, false),
    );
    let brief = endpoints.waiting_for(0, false);
    tokio::time::advance(PROBE_TIMEOUT / 2).await;
    let late = endpoints.waiting_for(0, false);
    tokio::time::advance(PROBE_TIMEOUT / 2).await;
    // It took long, but it is an answer.
    answered.end();
    brief.end();
    // Its caller left early, which says nothing about the server.
    drop(late);
    assert!(due(&endpoints).is_empty());
    drop(given_up);
    assert_eq!(due(&endpoints), [1]);
    // However many are given up, there is one check, and the next one is a second later.
    let many: Vec<_> = (0..100).map(|_| endpoints.waiting_for(1, false)).collect();
    endpoints.probed(1, ProbeOutcome::Ready);
    tokio::time::advance(PROBE_TIMEOUT).await;
    endpoints.probed(1, ProbeOutcome::Ready);
    drop(many);
    assert!(due(&endpoints).iter().all(|index| *index != 1));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(due(&endpoints).contains(&1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_to_proofs_of_freshness_is_checked_at_once() {
    let endpoints = several();
    let (own, forwarded) = (
        endpoints.waiting_for(1, true),
        endpoints.waiting_for(0, false),
    );
    // The gateway gives up a proof of freshness later than that.
    tokio::time::advance(OWN_SILENCE).await;
    drop(forwarded);
    assert!(due(&endpoints).is_empty());
    drop(own);
    assert_eq!(due(&endpoints), [1]);
}
