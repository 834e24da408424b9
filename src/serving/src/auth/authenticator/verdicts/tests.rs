//! What is remembered of chains, and what they cost.

use rcgen::{CertificateParams, date_time_ymd};

use super::*;
use crate::auth::tests::{ClientCa, client, day};

fn now() -> SystemTime {
    day(2026, 11, 22)
}

fn chain_of(ca: &ClientCa, params: &CertificateParams) -> CertificateChain {
    vec![ca.sign(params)].into()
}

impl CertificateVerifier {
    async fn accepts(
        &self,
        chain: &CertificateChain,
        now: SystemTime,
    ) -> Result<(), CertificateError> {
        let verdict = self.verify(chain, Peer::UNKNOWN, now).await.unwrap();
        verdict.map(|_| ())
    }

    async fn remembered_until(&self, chain: &CertificateChain) -> Option<SystemTime> {
        let state = self.state.load_full().unwrap();
        let verdict = state.verdicts.get(&digest(chain)).await?;
        Some(verdict.valid_until)
    }
}

#[tokio::test]
async fn a_refusal_is_remembered_until_time_could_change_it() {
    let ca = ClientCa::new("clients");
    let verifier = CertificateVerifier::new(Some(ca.authorities()));
    let forged = chain_of(&ClientCa::new("clients"), &client("mallory", &[]));
    let refused = Err(CertificateError::Untrusted);
    assert_eq!(verifier.accepts(&forged, now()).await, refused);
    let until = verifier.remembered_until(&forged).await;
    assert_eq!(until, Some(now() + REFUSAL_TTL_MAX));
    // A clock may be ahead of the gateway's.
    let mut params = client("alice", &[]);
    params.not_before = date_time_ymd(2026, 11, 22) + Duration::from_secs(5);
    let early = chain_of(&ca, &params);
    for (seconds, expected) in [(0, refused.clone()), (4, refused), (5, Ok(()))] {
        let time = now() + Duration::from_secs(seconds);
        assert_eq!(verifier.accepts(&early, time).await, expected, "{seconds}");
    }
}

#[tokio::test]
async fn requests_with_the_same_chain_wait_for_one_verification() {
    let ca = ClientCa::new("clients");
    let verifier = CertificateVerifier::new(Some(ca.authorities()));
    let chain = chain_of(&ca, &client("alice", &[]));
    // With one permit left, a second verification would have to wait for it.
    let mut taken = Vec::new();
    for _ in 1..RUNNING_MAX {
        taken.push(
            verifier
                .permits
                .request(Peer::UNKNOWN)
                .unwrap()
                .granted()
                .await,
        );
    }
    let requests = (0..100).map(|_| verifier.accepts(&chain, now()));
    let verdicts = futures::future::join_all(requests).await;
    assert!(verdicts.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_chain_that_cannot_be_verified_is_neither_valid_nor_refused() {
    let ca = ClientCa::new("clients");
    let verifier = CertificateVerifier::new(Some(ca.authorities()));
    let chain = chain_of(&ca, &client("alice", &[]));
    let others = std::iter::from_fn(|| verifier.permits.request(Peer::UNKNOWN));
    let others: Vec<_> = others.collect();
    assert_eq!(
        verifier.accepts(&chain, now()).await,
        Err(CertificateError::Busy)
    );
    // Another address has its share of the queue.
    let other = Peer::from(std::net::IpAddr::from([10, 0, 0, 1]));
    let verification = verifier.verify(&chain, other, now());
    let ((), verdict) = tokio::join!(async { drop(others) }, verification);
    assert!(verdict.unwrap().is_ok());
    assert_eq!(verifier.accepts(&chain, now()).await, Ok(()));
}
