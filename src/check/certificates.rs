//! Verdicts about certificates. Times are seconds since 1970.

use core::net::IpAddr;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use super::verdict::CheckVerdict;
use super::words::counted;

const AUTHORITIES: (&str, &str) = ("authority", "authorities");

const DAY: i64 = 86_400;
/// Authorities that renew certificates by themselves do so earlier than this.
const EXPIRY_WARNING: i64 = 14 * DAY;

/// What checks read of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFacts {
    /// DNS names in lower case, and addresses.
    pub(super) names: Vec<String>,
    pub(super) not_before: i64,
    pub(super) not_after: i64,
    pub(super) is_authority: bool,
}

impl CertificateFacts {
    /// Reads a certificate, DER; `None` if it is none.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let validity = certificate.validity();
        Some(Self {
            names: names_of(&certificate),
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            is_authority: certificate.is_ca(),
        })
    }

    /// Whether a client that connects to this name accepts the certificate's names.
    fn covers(&self, name: &str) -> bool {
        // An address can be written in several ways.
        if let Ok(address) = name.parse::<IpAddr>() {
            return self.names.contains(&address.to_string());
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|own| {
            let is_wild = own
                .strip_prefix("*.")
                .is_some_and(|rest| Some(rest) == parent);
            *own == name || is_wild
        })
    }
}

fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let names = extension
        .iter()
        .flat_map(|extension| &extension.value.general_names);
    names
        .filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                // Clients compare an address with addresses only, so one that is written as a DNS name is of no use to them.
                let is_address = name.parse::<IpAddr>().is_ok();
                Some(name.to_ascii_lowercase()).filter(|_| !is_address)
            } else if let GeneralName::IPAddress(bytes) = name {
                address(bytes).map(|ip| ip.to_string())
            } else {
                None
            }
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Whether certificates are valid now and for a while. `hint` says how to renew them.
pub(super) fn expiry_verdict(
    certificates: &[(String, CertificateFacts)],
    now: i64,
    hint: &str,
) -> CheckVerdict {
    let mut by_end: Vec<_> = certificates.iter().collect();
    by_end.sort_by_key(|(_, facts)| facts.not_after);
    let verdicts = by_end
        .into_iter()
        .map(|(name, facts)| validity_verdict(name, facts, now, hint));
    // Of those that are equally bad, the one that expires first. It need not be the worst: another may live longer and be late.
    let worst = verdicts.reduce(|worst, next| match next.level > worst.level {
        true => next,
        false => worst,
    });
    worst.unwrap_or_else(|| CheckVerdict::skipped("there is no certificate"))
}

/// Whether this certificate is valid now and for a while.
fn validity_verdict(name: &str, facts: &CertificateFacts, now: i64, hint: &str) -> CheckVerdict {
    let left = facts.not_after - now;
    if left < 0 {
        return CheckVerdict::failure(format!("{name} expired {} ago", span(-left)), hint);
    }
    if facts.not_before > now {
        let wait = span(facts.not_before - now);
        return CheckVerdict::failure(format!("{name} becomes valid only in {wait}"), hint);
    }
    let text = format!("{name} expires in {}", span(left));
    // A short-lived certificate is renewed when little of its life is left.
    let lifetime = facts.not_after - facts.not_before;
    if left < EXPIRY_WARNING.min(lifetime / 5) {
        return CheckVerdict::warning(text, hint);
    }
    CheckVerdict::ok(text)
}

/// Whether credentials that expire at this time are valid now. A plugin that issues them issues new ones in time.
pub(super) fn credentials_verdict(expires_at: Option<i64>, now: i64) -> CheckVerdict {
    let Some(at) = expires_at else {
        return CheckVerdict::ok("the gateway's credentials do not say when they expire");
    };
    let hint = "run the kubeconfig's plugin: it must issue credentials that are valid now";
    match at - now {
        left if left < 0 => CheckVerdict::failure(
            format!("the gateway's credentials expired {} ago", span(-left)),
            hint,
        ),
        left => CheckVerdict::ok(format!(
            "the gateway's credentials expire in {}",
            span(left)
        )),
    }
}

/// Whether each of these certificates can be an authority, and at least one is valid.
pub(super) fn authorities_verdict(
    path: &str,
    certificates: &[CertificateFacts],
    now: i64,
) -> CheckVerdict {
    let count = certificates.len();
    let hint = "the file must hold the certificates of authorities, PEM, as kube-apiserver's flag of the same name";
    if certificates.iter().any(|facts| !facts.is_authority) {
        let text = format!("{path} holds a certificate that is no authority");
        return CheckVerdict::failure(text, hint);
    }
    let expired = certificates.iter().filter(|facts| facts.not_after < now);
    match expired.count() {
        0 => CheckVerdict::ok(format!("{path}: {}", counted(count, AUTHORITIES))),
        all if all == count => CheckVerdict::failure(
            format!("{path}: all authorities have expired"),
            "issue a new authority and new certificates",
        ),
        some => CheckVerdict::warning(
            format!("{path}: expired: {some} of {}", counted(count, AUTHORITIES)),
            "remove them from the file",
        ),
    }
}

/// Whether the certificate that a client gets for each of these names has that name. `served` is the names with these certificates.
pub(super) fn names_verdict(
    certificates: &[(String, CertificateFacts)],
    served: &[(String, CertificateFacts)],
) -> CheckVerdict {
    let known: Vec<&str> = certificates
        .iter()
        .flat_map(|(_, facts)| &facts.names)
        .map(String::as_str)
        .collect();
    let hint = "issue a certificate with these subject alternative names: the Service's DNS name, and every address or name that clients use";
    if known.is_empty() {
        return CheckVerdict::failure("the certificate has no subject alternative names", hint);
    }
    let missing = served.iter().filter(|(name, facts)| !facts.covers(name));
    let missing: Vec<_> = missing.map(|(name, _)| name).collect();
    if !missing.is_empty() {
        let names = counted(missing.len(), ("name", "names"));
        let text = format!("the certificates that are served lack {names} that clients use");
        return CheckVerdict::failure(text, hint).with_details(missing);
    }
    if served.is_empty() {
        let text = "give the names that clients use with --client-names to have them compared";
        return CheckVerdict::ok(format!("it has {}; {text}", known.join(", ")));
    }
    let names: Vec<_> = served.iter().map(|(name, _)| name.as_str()).collect();
    CheckVerdict::ok(format!("it has {}", names.join(", ")))
}

/// `90 days`, `3 hours`, `40 s`.
fn span(seconds: i64) -> String {
    match seconds {
        s if s >= 2 * DAY => format!("{} days", s / DAY),
        s if s >= 7_200 => format!("{} hours", s / 3_600),
        s if s >= 120 => format!("{} minutes", s / 60),
        s => format!("{s} s"),
    }
}
