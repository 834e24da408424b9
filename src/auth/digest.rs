//! Keyed hashes of credentials, by which caches and leases know them without keeping them.

use aws_lc_rs::hmac;
use http::HeaderMap;
use rustls_pki_types::CertificateDer;

use super::caller::BearerToken;

/// A keyed hash of credentials. Tells nothing about them to who does not know the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Makes digests of credentials, with a key of this process.
pub struct CredentialHasher(hmac::Key);

impl std::fmt::Debug for CredentialHasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("CredentialHasher(..)")
    }
}

impl CredentialHasher {
    /// With a key that nobody else has.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn random() -> Result<Self, RandomnessError> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        key.map(Self).map_err(|_| RandomnessError)
    }

    /// With this key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Of a token, whoever it impersonates.
    #[must_use]
    pub fn token(&self, token: &BearerToken) -> Digest {
        self.digest(token, &HeaderMap::new())
    }

    /// Of a token together with the headers that impersonate.
    #[must_use]
    pub fn digest(&self, token: &BearerToken, impersonation: &HeaderMap) -> Digest {
        let mut sequence = DigestInput(hmac::Context::with_key(&self.0));
        sequence.put(token.secret().as_bytes());
        let mut names: Vec<_> = impersonation.keys().collect();
        names.sort_unstable_by_key(|name| name.as_str());
        for name in names {
            for value in impersonation.get_all(name) {
                sequence.put(name.as_str().as_bytes());
                sequence.put(value.as_bytes());
            }
        }
        sequence.digest()
    }

    /// Of a chain of certificates, and of what it is shown for.
    #[must_use]
    pub fn certificates(&self, purpose: &str, chain: &[CertificateDer<'_>]) -> Digest {
        let mut sequence = DigestInput(hmac::Context::with_key(&self.0));
        sequence.put(purpose.as_bytes());
        for certificate in chain {
            sequence.put(certificate);
        }
        sequence.digest()
    }
}

/// What is hashed. Each part goes with its length, so that no two sequences have the same bytes.
struct DigestInput(hmac::Context);

impl DigestInput {
    fn put(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn digest(self) -> Digest {
        let mut digest = [0; 32];
        for (to, from) in digest.iter_mut().zip(self.0.sign().as_ref()) {
            *to = *from;
        }
        Digest(digest)
    }
}

/// The system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random bytes for a key")]
pub struct RandomnessError;
