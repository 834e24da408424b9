//! A client's certificate in DER: its subject names a user or is rejected, and a certificate signed by an unknown authority is never
//! accepted.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use kube_fanout::auth::certificate::{self, ClientAuthorities};
use libfuzzer_sys::fuzz_target;

/// Nobody has its private key, so no input can carry its signature.
static AUTHORITIES: LazyLock<ClientAuthorities> = LazyLock::new(|| {
    ClientAuthorities::from_pem(include_bytes!("../authority.pem")).expect("a certificate")
});

fuzz_target!(|certificate: &[u8]| {
    let subject = certificate::user(&certificate.into());
    if let Ok((user, common_name)) = &subject {
        assert!(!user.name.is_empty());
        assert_eq!(user.name, *common_name);
        assert_eq!(user.extra.len(), 1);
        assert_eq!(certificate::user(&certificate.into()), subject);
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let chain = [certificate.to_vec().into()];
    assert!(AUTHORITIES.verify(&chain, now).is_err());
    let twice = [certificate.to_vec().into(), certificate.to_vec().into()];
    assert!(AUTHORITIES.verify(&twice, now).is_err());
});
