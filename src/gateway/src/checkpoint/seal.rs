//! Encryption of blocks: AES-256-GCM, with a key for each file that is derived from the operator's key and the file's salt.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Length of an operator's key.
const KEY_LEN: usize = 32;
/// Length of a file's salt.
pub(super) const SALT_LEN: usize = 16;
/// What the derived keys are for.
const PURPOSE: &[&[u8]] = &[b"kube-fanout checkpoint block"];

/// Why a key or a sealed block cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The text is not the base64 of 32 bytes.
    #[error("the key is not 32 bytes in base64 (`head -c 32 /dev/urandom | base64` makes one)")]
    Key,
    /// The cryptographic library refused.
    #[error("the cryptographic library refused the operation")]
    Refused,
}

/// The operator's key, which checkpoints are encrypted with.
#[derive(Clone)]
pub struct StateKey([u8; KEY_LEN]);

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateKey(…)")
    }
}

impl StateKey {
    /// Parses the content of a key file: 32 bytes in base64; white space around them is ignored.
    ///
    /// # Errors
    /// [`SealError::Key`].
    pub fn parse(text: &str) -> Result<Self, SealError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| SealError::Key)?;
        bytes.try_into().map(Self).map_err(|_| SealError::Key)
    }

    /// The key of the file with this salt.
    pub(super) fn for_file(&self, salt: &[u8; SALT_LEN]) -> Result<BlockSeal, SealError> {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let derived = secret.expand(PURPOSE, &AES_256_GCM);
        let key: UnboundKey = derived.map_err(|_| SealError::Refused)?.into();
        Ok(BlockSeal(LessSafeKey::new(key)))
    }
}

/// Encrypts and decrypts the blocks of one file. A block's index is its nonce: each index is sealed once in a file, and each file has
/// a key of its own. The index also fixes the order of the blocks.
pub(super) struct BlockSeal(LessSafeKey);

impl fmt::Debug for BlockSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockSeal(…)")
    }
}

impl BlockSeal {
    /// Encrypts the block in place and appends its tag.
    pub(super) fn seal(&self, index: u64, block: &mut Vec<u8>) -> Result<(), SealError> {
        let sealed = self
            .0
            .seal_in_place_append_tag(nonce(index), Aad::empty(), block);
        sealed.map_err(|_| SealError::Refused)
    }

    /// Decrypts the block in place and removes its tag; `None` if it was sealed with another key, or changed.
    pub(super) fn open(&self, index: u64, block: &mut Vec<u8>) -> Option<()> {
        let opened = self.0.open_in_place(nonce(index), Aad::empty(), block);
        let len = opened.ok()?.len();
        block.truncate(len);
        Some(())
    }
}

fn nonce(index: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&index.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
