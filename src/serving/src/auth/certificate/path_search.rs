//! The search for a path from a client's certificate to an authority. Its cost does not depend on what clients send: few certificates
//! can be part of a path, and few signatures are checked.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::certificate_error::CertificateError;
use super::chain_certificate::ChainCertificate;

/// Intermediate certificates that can be part of a path, without authorities of the file. Two are many; a third one may be cross-signed.
/// What a client sends beside them, such as the old and the new root while roots change, does not count.
pub(super) const INTERMEDIATES_MAX: usize = 3;

/// Signatures that one search checks. A path has four; the others are those of authorities that share a name, while one replaces
/// another.
pub(super) const SIGNATURES_MAX: usize = 32;

/// A search from one certificate at one time.
pub(super) struct PathSearch<'a> {
    anchors: &'a [ChainCertificate],
    intermediates: Vec<ChainCertificate>,
    now: i64,
    signatures: usize,
}

impl<'a> PathSearch<'a> {
    /// Selects those of the `others` that can be part of a path from `leaf`: authorities that names connect with it.
    ///
    /// # Errors
    /// [`CertificateError::TooLong`] if they are too many.
    pub(super) fn new(
        leaf: &ChainCertificate,
        others: Vec<ChainCertificate>,
        anchors: &'a [ChainCertificate],
        now: i64,
    ) -> Result<Self, CertificateError> {
        let mut candidates = others;
        candidates.retain(|one| {
            let is_replaced = anchors.iter().any(|anchor| replaces(anchor, one, now));
            one.counts_at(now) && one.may_sign() && one.is_authority() && !is_replaced
        });
        let (mut intermediates, mut signatures) = (Vec::<ChainCertificate>::new(), 0);
        while let Some(index) = candidates.iter().position(|one| {
            std::iter::once(leaf)
                .chain(&intermediates)
                .any(|child| child.issuer == one.subject)
        }) {
            let found = candidates.swap_remove(index);
            if intermediates.iter().any(|one| one.der == found.der) {
                continue;
            }
            // Nobody else has signed it, so it can only end a path, and the file does not have it.
            if found.subject == found.issuer && signatures < SIGNATURES_MAX {
                signatures += 1;
                if found.has_signed(&found) {
                    continue;
                }
            }
            if intermediates.len() == INTERMEDIATES_MAX {
                return Err(CertificateError::TooLong);
            }
            intermediates.push(found);
        }
        Ok(Self {
            anchors,
            intermediates,
            now,
            signatures,
        })
    }

    /// The last second of the path that lasts longest; `None` if there is no path.
    pub(super) fn last_second(&mut self, leaf: &ChainCertificate) -> Option<i64> {
        if !leaf.counts_at(self.now) {
            return None;
        }
        if self.anchors.iter().any(|anchor| anchor.der == leaf.der) {
            return Some(leaf.validity.to);
        }
        let intermediates = std::mem::take(&mut self.intermediates);
        self.extend(&mut vec![leaf], &intermediates)
    }

    /// Continues a path, whose certificates are all valid, to an authority of the file.
    fn extend<'b>(
        &mut self,
        path: &mut Vec<&'b ChainCertificate>,
        intermediates: &'b [ChainCertificate],
    ) -> Option<i64> {
        let child = *path.last()?;
        let mut last = None;
        for anchor in parents(child, self.anchors) {
            if self.may_follow(path, anchor) && obeys_name_constraints(path, anchor, self.now) {
                let ends = path.iter().map(|one| one.validity.to);
                last = last.max(ends.chain([anchor.validity.to]).min());
            }
        }
        for intermediate in parents(child, intermediates) {
            if self.may_follow(path, intermediate) {
                path.push(intermediate);
                last = last.max(self.extend(path, intermediates));
                path.pop();
            }
        }
        last
    }

    fn may_follow(&mut self, path: &[&ChainCertificate], parent: &ChainCertificate) -> bool {
        let Some((child, below)) = path.split_last() else {
            return false;
        };
        let is_possible = parent.counts_at(self.now)
            && parent.may_sign()
            && parent.allows_below(below.len())
            && !path.iter().any(|one| one.is_same_authority(parent));
        if !is_possible || self.signatures == SIGNATURES_MAX {
            return false;
        }
        self.signatures += 1;
        parent.has_signed(child)
    }
}

/// Whether every path through `one` can end with this authority of the file instead.
fn replaces(anchor: &ChainCertificate, one: &ChainCertificate, now: i64) -> bool {
    let is_able = anchor.counts_at(now) && anchor.may_sign() && !anchor.is_constrained();
    anchor.der == one.der || anchor.is_same_authority(one) && is_able
}

/// The certificates that may have signed `child`, by its issuer's name; first those with the key that it names.
fn parents<'b>(child: &ChainCertificate, all: &'b [ChainCertificate]) -> Vec<&'b ChainCertificate> {
    let mut named: Vec<_> = all
        .iter()
        .filter(|one| one.subject == child.issuer)
        .collect();
    named.sort_by_key(|one| one.has_other_key_than(child));
    named
}

/// Whether the names in the path are those for which its authorities may sign. Hardly any authority of clients limits names; where one
/// does, webpki decides, which also refuses what it cannot compare.
fn obeys_name_constraints(path: &[&ChainCertificate], anchor: &ChainCertificate, now: i64) -> bool {
    let [leaf, intermediates @ ..] = path else {
        return false;
    };
    if !intermediates
        .iter()
        .chain([&anchor])
        .any(|one| one.has_name_constraints)
    {
        return true;
    }
    let mut roots = RootCertStore::empty();
    if roots.add(anchor.der.clone()).is_err() {
        return false;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let others: Vec<CertificateDer<'_>> = intermediates.iter().map(|one| one.der.clone()).collect();
    let seconds = Duration::from_secs(u64::try_from(now).unwrap_or_default());
    let time = UnixTime::since_unix_epoch(seconds);
    verifier.is_ok_and(|verifier| {
        verifier
            .verify_client_cert(&leaf.der, &others, time)
            .is_ok()
    })
}

#[cfg(test)]
mod tests;
