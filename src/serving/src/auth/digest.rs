//! Keyed hashes of credentials. Caches and leases use them as keys, so that they need not store the credentials.

use aws_lc_rs::hmac;
use http::HeaderMap;
use rustls_pki_types::CertificateDer;

use super::caller::BearerToken;

/// A keyed hash of credentials. Without the key it reveals nothing about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Computes digests of credentials with a secret key.
pub struct CredentialHasher(hmac::Key);

impl std::fmt::Debug for CredentialHasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("CredentialHasher(..)")
    }
}

impl CredentialHasher {
    /// A hasher with a random key.
    ///
    /// # Errors
    /// [`RandomnessError`] if the system returns no random bytes.
    pub fn random() -> Result<Self, RandomnessError> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        hmac::Key::generate(hmac::HMAC_SHA256, &random)
            .map(Self)
            .map_err(|_| RandomnessError)
    }

    /// A hasher with this key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The digest of a token alone.
    #[must_use]
    pub fn token(&self, token: &BearerToken) -> Digest {
        self.digest(token, &HeaderMap::new())
    }

    /// The digest of a token together with impersonation headers. The order of different header names does not matter.
    #[must_use]
    pub fn digest(&self, token: &BearerToken, impersonation: &HeaderMap) -> Digest {
        let mut input = DigestInput(hmac::Context::with_key(&self.0));
        input.put(token.secret().as_bytes());
        let mut names: Vec<_> = impersonation.keys().collect();
        names.sort_unstable_by_key(|name| name.as_str());
        for name in names {
            for value in impersonation.get_all(name) {
                input.put(name.as_str().as_bytes());
                input.put(value.as_bytes());
            }
        }
        input.digest()
    }

    /// The digest of a certificate chain and of its purpose: as a client's certificate and as a front proxy's it has different digests.
    #[must_use]
    pub fn certificates(&self, purpose: &str, chain: &[CertificateDer<'_>]) -> Digest {
        let mut input = DigestInput(hmac::Context::with_key(&self.0));
        input.put(purpose.as_bytes());
        for certificate in chain {
            input.put(certificate);
        }
        input.digest()
    }
}

/// The input of a hash. Each part is preceded by its length, so that different sequences of parts never have the same bytes.
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

/// The system returned no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system returned no random bytes for a key")]
pub struct RandomnessError;
