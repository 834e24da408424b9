//! Which certificates are valid, which user they identify, and until when they are valid.

use rcgen::{CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, date_time_ymd};

use super::*;
use crate::auth::tests::{ClientCa, authority, client, day};

fn today() -> SystemTime {
    day(2026, 11, 22)
}

fn verify(
    ca: &ClientCa,
    params: &CertificateParams,
) -> Result<VerifiedCertificate, CertificateError> {
    ca.authorities().verify(&[ca.sign(params)], today())
}

fn named(ca: &ClientCa, params: &CertificateParams) -> Arc<User> {
    verify(ca, params).unwrap().user.unwrap()
}

#[test]
fn the_subject_is_the_user() {
    let ca = ClientCa::new("ca");
    let mut params = client("alice", &["devs", "a,b"]);
    let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    params.distinguished_name.push(uid, "7");
    let certificate = ca.sign(&params);
    let verified = ca
        .authorities()
        .verify(std::slice::from_ref(&certificate), today());
    let verified = verified.unwrap();
    let user = verified.user.unwrap();
    assert_eq!(user.name, "alice");
    assert_eq!(user.uid, "7");
    assert_eq!(user.groups, ["devs", "a,b", "system:authenticated"]);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &certificate);
    let hex: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        user.extra["authentication.kubernetes.io/credential-id"],
        [format!("X509SHA256={hex}")]
    );
    assert_eq!(verified.common_name, "alice");
    assert_eq!(
        verified.expires_at,
        day(2040, 1, 1) + Duration::from_secs(1)
    );
}

#[test]
fn subjects_that_can_be_read_in_two_ways_name_nobody() {
    let ca = ClientCa::new("ca");
    let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    let text = |text: &str| DnValue::Utf8String(text.to_owned());
    let rows = [
        ("alice", Some((uid(), text(""))), "UID"),
        (
            "alice",
            Some((uid(), DnValue::TeletexString("7".try_into().unwrap()))),
            "UID",
        ),
        (
            "",
            Some((
                DnType::CommonName,
                DnValue::BmpString("alice".try_into().unwrap()),
            )),
            "CN",
        ),
        (
            "",
            Some((
                DnType::CommonName,
                DnValue::UniversalString("alice".try_into().unwrap()),
            )),
            "CN",
        ),
        (
            "alice",
            Some((
                DnType::OrganizationName,
                DnValue::TeletexString("g".try_into().unwrap()),
            )),
            "O",
        ),
    ];
    for (name, more, part) in rows {
        let mut params = client(name, &[]);
        if let Some((kind, value)) = more {
            params.distinguished_name.push(kind, value);
        }
        let refused = verify(&ca, &params);
        assert_eq!(
            refused,
            Err(CertificateError::Subject { part }),
            "{params:?}"
        );
    }
}

#[test]
fn a_subject_without_a_common_name_names_nobody_and_is_no_fault() {
    let ca = ClientCa::new("ca");
    let mut empty = client("", &["devs"]);
    let text = DnValue::Utf8String(String::new());
    empty.distinguished_name.push(DnType::CommonName, text);
    for params in [client("", &["devs"]), empty] {
        let verified = verify(&ca, &params).unwrap();
        assert_eq!(verified.user, None);
        assert_eq!(verified.common_name, "");
    }
}

#[test]
fn the_last_common_name_counts_and_all_kinds_of_text_are_read() {
    let ca = ClientCa::new("ca");
    let mut params = client("first", &[]);
    params
        .distinguished_name
        .push(DnType::CustomDnType(vec![2, 5, 4, 3]), "last");
    assert_eq!(named(&ca, &params).name, "last");
    for value in [
        DnValue::Utf8String("bob".to_owned()),
        DnValue::PrintableString("bob".try_into().unwrap()),
        DnValue::Ia5String("bob".try_into().unwrap()),
    ] {
        let mut params = client("", &[]);
        params.distinguished_name.push(DnType::CommonName, value);
        assert_eq!(named(&ca, &params).name, "bob");
    }
    let odd = "system:admin\0 x\nü";
    assert_eq!(named(&ca, &client(odd, &[])).name, odd);
    let nobody = named(&ca, &client("system:anonymous", &[]));
    assert!(nobody.groups.is_empty());
}

/// The certificate with some bytes replaced by as many others. Its signature is no longer valid.
fn patched(certificate: &CertificateDer<'_>, from: &[u8], to: &[u8]) -> CertificateDer<'static> {
    assert_eq!(from.len(), to.len());
    let mut bytes = certificate.to_vec();
    let offset = bytes.windows(from.len()).position(|one| one == from);
    bytes[offset.unwrap()..][..to.len()].copy_from_slice(to);
    bytes.into()
}

#[test]
fn unusual_subjects_name_nobody() {
    let ca = ClientCa::new("ca");
    let refused = |part| Err(CertificateError::Subject { part });
    for (value, from, to) in [
        (
            DnValue::PrintableString("alice".try_into().unwrap()),
            "alice",
            "al@ce",
        ),
        (
            DnValue::PrintableString("alice".try_into().unwrap()),
            "alice",
            "al\0ce",
        ),
        (
            DnValue::Ia5String("alice".try_into().unwrap()),
            "alice",
            "alüe",
        ),
    ] {
        let mut params = client("", &[]);
        params.distinguished_name.push(DnType::CommonName, value);
        let certificate = ca.sign(&params);
        assert_eq!(user(&certificate).unwrap().1, "alice");
        let odd = patched(&certificate, from.as_bytes(), to.as_bytes());
        assert_eq!(user(&odd), refused("CN"), "{to:?}");
    }
    let mut params = client("alice", &[]);
    for last in [2, 3] {
        let kind = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, last]);
        params.distinguished_name.push(kind, "7");
    }
    let certificate = ca.sign(&params);
    assert_eq!(user(&certificate).unwrap().0.uid, "7");
    let twice = patched(&certificate, b"\x83\xc2\x53\x03", b"\x83\xc2\x53\x02");
    assert_eq!(user(&twice), refused("UID"));
    let more = [&certificate, &b"\0"[..]].concat().into();
    assert_eq!(user(&more), Err(CertificateError::Malformed));
}

#[test]
#[expect(clippy::or_fun_call, reason = "a test")]
fn certificates_not_valid_for_clients_now_are_refused() {
    let ca = ClientCa::new("ca");
    let with = |change: fn(&mut CertificateParams)| {
        let mut params = client("alice", &[]);
        change(&mut params);
        verify(&ca, &params)
    };
    let refused = [
        with(|params| params.not_after = date_time_ymd(2026, 11, 21)),
        with(|params| params.not_before = date_time_ymd(2026, 11, 23)),
        with(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
        verify(&ClientCa::new("other"), &client("alice", &[])).and(
            // An authority of the same name with another key.
            ClientCa::new("ca")
                .authorities()
                .verify(&[ca.sign(&client("alice", &[]))], today()),
        ),
    ];
    for refused in refused {
        assert_eq!(refused, Err(CertificateError::Untrusted));
    }
    // A certificate that does not restrict its usage is valid for clients.
    assert!(with(|params| params.extended_key_usages.clear()).is_ok());
}

#[test]
fn the_last_second_of_a_certificate_counts_and_the_next_does_not() {
    let ca = ClientCa::new("ca");
    let authorities = ca.authorities();
    let chain = [ca.sign(&client("alice", &[]))];
    let second = Duration::from_secs(1);
    for (time, expected) in [
        (day(2020, 1, 1) - second, false),
        (day(2020, 1, 1), true),
        (day(2040, 1, 1), true),
        (day(2040, 1, 1) + second, false),
        (UNIX_EPOCH, false),
        (UNIX_EPOCH - second, false),
    ] {
        assert_eq!(
            authorities.verify(&chain, time).is_ok(),
            expected,
            "{time:?}"
        );
    }
}

#[test]
fn a_chain_counts_as_long_as_all_that_it_needs() {
    let root = ClientCa::new("root");
    let mut params = authority("intermediate");
    params.not_after = date_time_ymd(2030, 1, 1);
    let intermediate = root.intermediate(&params);
    let leaf = intermediate.sign(&client("alice", &[]));
    let authorities = root.authorities();
    let alone = authorities.verify(std::slice::from_ref(&leaf), today());
    assert_eq!(alone, Err(CertificateError::Untrusted));
    let chain = [leaf, intermediate.der()];
    let verified = authorities.verify(&chain, today()).unwrap();
    assert_eq!(
        verified.expires_at,
        day(2030, 1, 1) + Duration::from_secs(1)
    );
    assert!(authorities.verify(&chain, day(2030, 1, 2)).is_err());
    // A certificate that the chain does not need does not shorten its validity.
    let mut stranger = authority("stranger");
    stranger.not_after = date_time_ymd(2027, 1, 1);
    let stranger = ClientCa::with(&stranger).der();
    let [leaf, intermediate] = chain;
    let verified = authorities.verify(&[leaf, stranger.clone(), intermediate], today());
    assert_eq!(
        verified.unwrap().expires_at,
        day(2030, 1, 1) + Duration::from_secs(1)
    );
    let direct = [root.sign(&client("bob", &[])), stranger];
    let verified = authorities.verify(&direct, today()).unwrap();
    assert_eq!(
        verified.expires_at,
        day(2040, 1, 1) + Duration::from_secs(1)
    );
}

#[test]
fn authorities_expire_too() {
    let mut params = authority("old");
    params.not_after = date_time_ymd(2026, 12, 1);
    let (old, new) = (ClientCa::with(&params), ClientCa::new("new"));
    let authorities = ClientAuthorities::from_pem((old.pem() + &new.pem()).as_bytes()).unwrap();
    let by_old = [old.sign(&client("alice", &[]))];
    let by_new = [new.sign(&client("bob", &[]))];
    let verified = authorities.verify(&by_old, today()).unwrap();
    assert_eq!(
        verified.expires_at,
        day(2026, 12, 1) + Duration::from_secs(1)
    );
    assert!(authorities.verify(&by_old, day(2026, 12, 2)).is_err());
    assert!(authorities.verify(&by_new, day(2026, 12, 2)).is_ok());
    // The clock may also be set back.
    assert!(authorities.verify(&by_old, today()).is_ok());
    let alone = old.authorities();
    assert!(alone.verify(&by_old, day(2026, 12, 2)).is_err());
}

#[test]
fn chains_are_bounded_and_must_be_certificates() {
    let ca = ClientCa::new("ca");
    let authorities = ca.authorities();
    let leaf = ca.sign(&client("alice", &[]));
    let chain = |others: usize| {
        let mut chain = vec![leaf.clone()];
        chain.extend(std::iter::repeat_n(ca.der(), others));
        authorities.verify(&chain, today())
    };
    assert!(chain(CHAIN_COUNT_MAX - 1).is_ok());
    assert_eq!(chain(CHAIN_COUNT_MAX), Err(CertificateError::TooLong));
    let long = CertificateDer::from(vec![0x30; CHAIN_LEN_MAX + 1]);
    assert_eq!(
        authorities.verify(&[long], today()),
        Err(CertificateError::TooLong)
    );
    assert_eq!(
        authorities.verify(&[], today()),
        Err(CertificateError::Malformed)
    );
    for bytes in [&b""[..], b"\x30\x80", b"hello", &leaf[..leaf.len() - 1]] {
        let refused = authorities.verify(&[CertificateDer::from(bytes.to_vec())], today());
        assert!(refused.is_err());
    }
    let mut longer = leaf.to_vec();
    longer.push(0);
    assert!(
        authorities
            .verify(&[CertificateDer::from(longer)], today())
            .is_err()
    );
}

#[test]
fn files_of_authorities_are_taken_whole_or_not_at_all() {
    let ca = ClientCa::new("ca").pem();
    let no_der = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let unusable = ClientAuthorities::from_pem((ca.clone() + no_der).as_bytes()).unwrap_err();
    assert!(
        unusable
            .to_string()
            .starts_with("certificate 2 cannot be used: ")
    );
    for (pem, expected) in [
        ("", AuthoritiesError::Empty),
        ("hello", AuthoritiesError::Empty),
        (
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            AuthoritiesError::NotPem,
        ),
        (
            "-----BEGIN CERTIFICATE-----\naGVsbG8=\n",
            AuthoritiesError::NotPem,
        ),
    ] {
        assert_eq!(
            ClientAuthorities::from_pem(pem.as_bytes()).unwrap_err(),
            expected,
            "{pem}"
        );
    }
    let two = ClientAuthorities::from_pem((ca.clone() + "text between\n" + &ca).as_bytes());
    assert_eq!(
        format!("{:?}", two.unwrap()),
        "Authorities { anchors: 2, .. }"
    );
}
