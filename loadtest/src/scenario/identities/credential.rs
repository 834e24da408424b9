//! What clients of the scenario present: a kubelet's certificate, or a pod's token, which is replaced as kubelets replace it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube_fanout_testkit::apiserver::auth::{PodBinding, TokenUser, Tokens};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;

use crate::attack::certificates;
use crate::target::Tls;
use crate::writer::shape::node_name;

/// Share of a token's life after which a kubelet replaces it.
const REPLACED_AFTER: f64 = 0.8;
/// About the length of a service account's token, bytes.
const TOKEN_LEN: usize = 900;

/// The authority of kubelets' certificates.
pub struct KubeletAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, PEM.
    pub pem: String,
    /// The key of all kubelets: it makes no difference to the gateway.
    key: KeyPair,
}

impl KubeletAuthority {
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let params = certificates::authority();
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
            key: KeyPair::generate()?,
        })
    }

    /// The TLS configuration of the kubelet of a node.
    pub fn kubelet(&self, tls: &Tls, node: usize) -> Result<Arc<ClientConfig>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(DnType::OrganizationName, "system:nodes");
        name.push(
            DnType::CommonName,
            format!("system:node:{}", node_name(node)),
        );
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        tls.config_as("h2", vec![certificate.der().clone()], key.into())
    }
}

/// A pod as whom clients act.
#[derive(Debug)]
pub struct PodIdentity {
    /// The API server's tokens.
    pub tokens: Tokens,
    pub namespace: String,
    pub account: String,
    pub account_uid: String,
    /// Without the id of a credential.
    pub pod: PodBinding,
}

/// The token of a pod, shared by its watches.
#[derive(Debug)]
pub struct PodToken {
    identity: PodIdentity,
    lifetime: Duration,
    /// How often it was replaced.
    generation: u64,
    replaced_at: Instant,
}

impl PodToken {
    /// Issues the first token, as old as `chance`, from 0 to 1, makes it.
    pub fn issue(identity: PodIdentity, lifetime: Duration, chance: f64) -> Self {
        let token = Self {
            identity,
            lifetime,
            generation: 0,
            replaced_at: Instant::now() + lifetime.mul_f64(REPLACED_AFTER * chance),
        };
        token.put();
        token
    }

    /// The token for a request at this time.
    pub fn current(&mut self, now: Instant) -> String {
        if self.replaced_at <= now {
            // The one before stays valid: watches that it has opened are still there.
            if let Some(expired) = self.generation.checked_sub(1) {
                self.identity.tokens.remove(&self.text(expired));
            }
            self.generation += 1;
            self.replaced_at = now + self.lifetime.mul_f64(REPLACED_AFTER);
            self.put();
        }
        self.text(self.generation)
    }

    fn text(&self, generation: u64) -> String {
        let uid = &self.identity.pod.pod_uid;
        format!("{uid}.{generation}.{:x<TOKEN_LEN$}", "")
    }

    fn put(&self) {
        let identity = &self.identity;
        let pod = PodBinding {
            credential_id: format!("JTI={}-{}", identity.pod.pod_uid, self.generation),
            ..identity.pod.clone()
        };
        let user = TokenUser::of_pod(
            &identity.namespace,
            &identity.account,
            &identity.account_uid,
            pod,
        );
        identity.tokens.put(&self.text(self.generation), user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_replaced_at_four_fifths_of_its_life_and_the_one_before_stays() {
        let tokens = Tokens::default();
        let identity = PodIdentity {
            tokens: tokens.clone(),
            namespace: "n".to_owned(),
            account: "a".to_owned(),
            account_uid: "u".to_owned(),
            pod: PodBinding::default(),
        };
        let lifetime = Duration::from_secs(100);
        let mut token = PodToken::issue(identity, lifetime, 0.5);
        let begun = Instant::now();
        let mut seen: Vec<String> = Vec::new();
        for after_s in [0, 30, 50, 120, 140] {
            seen.push(token.current(begun + Duration::from_secs(after_s)));
        }
        seen.dedup();
        assert_eq!(seen.len(), 3);
        assert!(!tokens.remove(&seen[0]));
        assert!(tokens.remove(&seen[1]) && tokens.remove(&seen[2]));
    }
}
