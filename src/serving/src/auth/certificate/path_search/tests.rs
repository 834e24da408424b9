//! What is part of a path is what Go's `x509.Certificate.Verify` takes, and a search costs little whatever a client sends.

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    SanType, SigningKey, date_time_ymd,
};
use x509_parser::asn1_rs::Any;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::*;
use crate::auth::certificate::ClientAuthorities;
use crate::auth::tests::{ClientCa, authority, client, day};

type Chain = Vec<CertificateDer<'static>>;

fn pem(certificates: &[CertificateDer<'_>]) -> String {
    certificates
        .iter()
        .map(|one| {
            let base64 = base64::engine::general_purpose::STANDARD.encode(one);
            format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n")
        })
        .collect()
}

fn verify(
    anchors: &[CertificateDer<'_>],
    chain: &[CertificateDer<'static>],
) -> Result<String, CertificateError> {
    let authorities = ClientAuthorities::from_pem(pem(anchors).as_bytes()).unwrap();
    let verified = authorities.verify(chain, day(2026, 11, 22))?;
    Ok(verified.common_name)
}

fn changed(
    params: &CertificateParams,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateParams {
    let mut params = params.clone();
    change(&mut params);
    params
}

fn unknown_critical() -> Vec<CustomExtension> {
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    vec![extension]
}

/// Changes of an authority's certificate, and whether it may still sign clients' certificates, as an authority of the file and as an
/// intermediate one.
#[expect(
    clippy::type_complexity,
    clippy::too_many_lines,
    reason = "a table of rows"
)]
fn rows() -> [(&'static str, fn(&mut CertificateParams), bool, bool); 16] {
    let none: fn(&mut CertificateParams) = |_| {};
    [
        ("an authority", none, true, true),
        (
            "no basic constraints",
            |one| one.is_ca = IsCa::NoCa,
            false,
            false,
        ),
        (
            "CA:FALSE",
            |one| one.is_ca = IsCa::ExplicitNoCa,
            false,
            false,
        ),
        (
            "CA:FALSE, although its key usage allows signing",
            |one| {
                one.is_ca = IsCa::ExplicitNoCa;
                one.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            },
            false,
            false,
        ),
        (
            "for signing",
            |one| one.key_usages = vec![KeyUsagePurpose::KeyCertSign],
            true,
            true,
        ),
        (
            "for other signatures",
            |one| one.key_usages = vec![KeyUsagePurpose::CrlSign],
            false,
            false,
        ),
        (
            "for servers",
            |one| one.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            false,
            false,
        ),
        (
            "for clients",
            |one| one.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            true,
            true,
        ),
        (
            "for anything",
            |one| one.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any],
            true,
            true,
        ),
        (
            "for an unknown use",
            |one| one.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(vec![1, 2, 3])],
            false,
            false,
        ),
        (
            "expired",
            |one| one.not_after = date_time_ymd(2026, 11, 21),
            false,
            false,
        ),
        (
            "not yet valid",
            |one| one.not_before = date_time_ymd(2026, 11, 23),
            false,
            false,
        ),
        (
            "an unknown critical extension",
            |one| one.custom_extensions = unknown_critical(),
            false,
            false,
        ),
        (
            "no other authority below",
            |one| one.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)),
            true,
            true,
        ),
        (
            "an unreadable extension",
            |one| {
                one.custom_extensions =
                    vec![CustomExtension::from_oid_content(&[2, 5, 29, 30], vec![1])];
            },
            false,
            false,
        ),
        (
            "an extension twice",
            |one| {
                one.key_usages = vec![KeyUsagePurpose::KeyCertSign];
                one.custom_extensions = vec![CustomExtension::from_oid_content(
                    &[2, 5, 29, 15],
                    vec![3, 2, 2, 4],
                )];
            },
            false,
            false,
        ),
    ]
}

#[test]
fn an_authority_of_the_file_signs_only_what_its_certificate_allows() {
    for (name, change, may_sign, _) in rows() {
        let ca = ClientCa::with(&changed(&authority("ca"), change));
        let chain = [ca.sign(&client("alice", &[]))];
        let authorities = ClientAuthorities::from_pem(ca.pem().as_bytes());
        let verified = authorities
            .is_ok_and(|authorities| authorities.verify(&chain, day(2026, 11, 22)).is_ok());
        assert_eq!(verified, may_sign, "{name}");
    }
}

#[test]
fn an_intermediate_authority_signs_only_what_its_certificate_allows() {
    let root = ClientCa::new("root");
    for (name, change, _, may_sign) in rows() {
        let between = root.intermediate(&changed(&authority("between"), change));
        let chain = [between.sign(&client("alice", &[])), between.der()];
        assert_eq!(verify(&[root.der()], &chain).is_ok(), may_sign, "{name}");
        // In the file, it is believed without its root.
        let authorities = ClientAuthorities::from_pem((root.pem() + &between.pem()).as_bytes());
        let anchored = authorities
            .is_ok_and(|authorities| authorities.verify(&chain[..1], day(2026, 11, 22)).is_ok());
        assert_eq!(anchored, may_sign, "{name}, in the file");
    }
}

#[test]
fn the_length_of_a_path_is_limited_by_every_authority_above() {
    let constrained = |name, max| {
        changed(&authority(name), |one| {
            one.is_ca = IsCa::Ca(BasicConstraints::Constrained(max));
        })
    };
    for (root_max, between_max, expected) in [
        (0, 9, false),
        (1, 0, false),
        (1, 9, false),
        (2, 1, true),
        (2, 0, false),
    ] {
        let root = ClientCa::with(&constrained("root", root_max));
        let between = root.intermediate(&constrained("between", between_max));
        let last = between.intermediate(&authority("last"));
        let chain = [last.sign(&client("alice", &[])), last.der(), between.der()];
        let verified = verify(&[root.der()], &chain);
        assert_eq!(verified.is_ok(), expected, "{root_max} {between_max}");
    }
}

#[test]
fn a_certificate_in_the_authority_file_authenticates_itself() {
    let owner = |change: fn(&mut CertificateParams)| {
        ClientCa::with(&changed(&client("alice", &["system:masters"]), change))
    };
    for (name, change, expected) in rows_of_leaves() {
        let alice = owner(change);
        let authorities = ClientAuthorities::from_pem(alice.pem().as_bytes()).unwrap();
        let verified = authorities.verify(&[alice.der()], day(2026, 11, 22));
        assert_eq!(verified.is_ok(), expected, "{name}");
        // It signs nobody else, and another certificate of the same name and key is another one.
        let mallory = [
            alice.sign(&client("mallory", &["system:masters"])),
            alice.der(),
        ];
        let refused = authorities.verify(&mallory, day(2026, 11, 22));
        assert_eq!(refused, Err(CertificateError::Untrusted), "{name}");
    }
    let (alice, twin) = (owner(|_| {}), owner(|_| {}));
    assert_eq!(
        verify(&[alice.der()], &[twin.der()]),
        Err(CertificateError::Untrusted)
    );
}

#[expect(clippy::type_complexity, reason = "a table of rows")]
fn rows_of_leaves() -> [(&'static str, fn(&mut CertificateParams), bool); 5] {
    [
        ("a client's", |_| {}, true),
        ("CA:FALSE", |one| one.is_ca = IsCa::ExplicitNoCa, true),
        (
            "expired",
            |one| one.not_after = date_time_ymd(2026, 11, 21),
            false,
        ),
        (
            "a server's",
            |one| one.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            false,
        ),
        (
            "an unknown critical extension",
            |one| one.custom_extensions = unknown_critical(),
            false,
        ),
    ]
}

#[test]
fn a_certificate_of_version_1_in_the_file_signs_and_one_from_a_client_does_not() {
    let key = KeyPair::generate().unwrap();
    let ca = CertifiedIssuer::self_signed(authority("ca"), key).unwrap();
    let first_version = of_version_1(ca.der(), ca.key());
    let leaf = client("alice", &[]).signed_by(&KeyPair::generate().unwrap(), &ca);
    let leaf = leaf.unwrap().der().clone();
    assert_eq!(
        verify(
            std::slice::from_ref(&first_version),
            std::slice::from_ref(&leaf)
        ),
        Ok("alice".to_owned())
    );
    let root = ClientCa::new("root");
    let chain = [leaf, first_version];
    assert_eq!(
        verify(&[root.der()], &chain),
        Err(CertificateError::Untrusted)
    );
}

/// The certificate in version 1, which has no extensions, signed by this key.
fn of_version_1(certificate: &[u8], key: &KeyPair) -> CertificateDer<'static> {
    let (_, parsed) = X509Certificate::from_der(certificate).unwrap();
    let (_, tbs) = Any::from_der(parsed.tbs_certificate.as_ref()).unwrap();
    let mut fields = Vec::new();
    let mut rest = tbs.data;
    while !rest.is_empty() {
        let (next, field) = Any::from_der(rest).unwrap();
        if !matches!(field.tag().0, 0 | 3 if field.class() as u8 == 2) {
            fields.extend_from_slice(&rest[..rest.len() - next.len()]);
        }
        rest = next;
    }
    let sequence = |content: &[u8]| {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[0x30, 0x82], &len[..], content].concat()
    };
    let tbs = sequence(&fields);
    let signature = key.sign(&tbs).unwrap();
    let whole = content_after(certificate, parsed.tbs_certificate.as_ref().len());
    let (bits, _) = Any::from_der(whole).unwrap();
    let algorithm = &whole[..whole.len() - bits.len()];
    let len = u8::try_from(signature.len() + 1).unwrap();
    let signature = [&[0x03, len, 0], &signature[..]].concat();
    sequence(&[&tbs, algorithm, &signature].concat()).into()
}

fn content_after(element: &[u8], len: usize) -> &[u8] {
    &Any::from_der(element).unwrap().1.data[len..]
}

#[test]
fn names_are_constrained_by_authorities_of_the_file_too() {
    let constrained = |permitted: GeneralSubtree| {
        changed(&authority("ca"), |one| {
            one.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![permitted],
                excluded_subtrees: Vec::new(),
            });
        })
    };
    let named = |name: &str| {
        changed(&client("alice", &[]), |one| {
            one.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
        })
    };
    let ca = ClientCa::with(&constrained(GeneralSubtree::DnsName(
        "good.example".to_owned(),
    )));
    for (params, expected) in [
        (client("alice", &[]), true),
        (named("node.good.example"), true),
        (named("node.evil.example"), false),
    ] {
        let verified = verify(&[ca.der()], &[ca.sign(&params)]);
        assert_eq!(verified.is_ok(), expected, "{params:?}");
        let root = ClientCa::new("root");
        let between = root.intermediate(&constrained(GeneralSubtree::DnsName(
            "good.example".to_owned(),
        )));
        let verified = verify(&[root.der()], &[between.sign(&params), between.der()]);
        assert_eq!(verified.is_ok(), expected, "{params:?}");
    }
    // Go does not read constraints of directory names, which are critical.
    let ca = ClientCa::with(&constrained(GeneralSubtree::DirectoryName(
        client("alice", &[]).distinguished_name,
    )));
    assert!(verify(&[ca.der()], &[ca.sign(&client("alice", &[]))]).is_err());
}

/// Authorities of one name, each with a key of its own, signed by itself.
fn namesakes(count: usize) -> Vec<ClientCa> {
    std::iter::repeat_with(|| ClientCa::new("mallory"))
        .take(count)
        .collect()
}

/// A search for this chain, and whether there is a path; or why there is no search.
fn search(
    anchors: &[CertificateDer<'static>],
    chain: &[CertificateDer<'static>],
) -> Result<(usize, bool), CertificateError> {
    let parse = |one| ChainCertificate::parse(one).unwrap();
    let anchors: Vec<_> = anchors.iter().map(parse).collect();
    let certificates = chain.iter().map(parse).collect::<Vec<_>>();
    let leaf = parse(&chain[0]);
    let others = certificates.into_iter().skip(1).collect();
    let mut search = PathSearch::new(&leaf, others, &anchors, 1_795_000_000)?;
    let last = search.last_second(&leaf);
    Ok((search.signatures, last.is_some()))
}

#[test]
fn authorities_of_one_name_in_a_chain_cost_little() {
    let root = ClientCa::new("root");
    let all = namesakes(SIGNATURES_MAX + INTERMEDIATES_MAX + 1);
    let mut chain = vec![all[0].sign(&client("mallory", &[]))];
    chain.extend(all.iter().map(ClientCa::der));
    assert_eq!(
        search(&[root.der()], &chain),
        Err(CertificateError::TooLong)
    );
    // As many as are accepted cost a signature each, whoever has signed them.
    chain.truncate(10);
    let (signatures, is_trusted) = search(&[root.der()], &chain).unwrap();
    assert!(!is_trusted && signatures <= SIGNATURES_MAX, "{signatures}");
    // Even if their name is the authority's.
    let (signatures, is_trusted) = search(&[ClientCa::new("mallory").der()], &chain).unwrap();
    assert!(!is_trusted && signatures <= SIGNATURES_MAX, "{signatures}");
    // Signed by others of the name, they are too many.
    let signer = |index: usize| &all[(index + 1) % 5];
    let crossed = all[..5].iter().enumerate().map(|(index, one)| {
        let cross = authority("mallory").signed_by(one.key(), signer(index).issuer());
        cross.unwrap().der().clone()
    });
    let chain: Chain = chain[..1].iter().cloned().chain(crossed).collect();
    assert_eq!(
        search(&[root.der()], &chain),
        Err(CertificateError::TooLong)
    );
}

#[test]
fn chains_that_sign_each_other_are_searched_within_the_bound() {
    // All authorities sign each other: by every order of them there is a path that ends nowhere.
    let keys = || std::iter::repeat_with(|| KeyPair::generate().unwrap());
    let issuers: Vec<_> = keys()
        .take(3)
        .map(|key| CertifiedIssuer::self_signed(authority("mallory"), key).unwrap())
        .collect();
    let mut chain: Chain = vec![];
    let leaf = client("mallory", &[]).signed_by(&KeyPair::generate().unwrap(), &issuers[0]);
    chain.push(leaf.unwrap().der().clone());
    for (index, issuer) in issuers.iter().enumerate() {
        let signer = &issuers[(index + 1) % issuers.len()];
        let cross = authority("mallory")
            .signed_by(issuer.key(), signer)
            .unwrap();
        chain.push(cross.der().clone());
    }
    let anchors: Vec<_> = namesakes(20).iter().map(ClientCa::der).collect();
    let (signatures, is_trusted) = search(&anchors, &chain).unwrap();
    assert_eq!((signatures, is_trusted), (SIGNATURES_MAX, false));
}

#[test]
fn certificates_that_cannot_be_part_of_a_path_do_not_count() {
    let root = ClientCa::new("root");
    let between = root.intermediate(&authority("between"));
    let mut chain = vec![between.sign(&client("alice", &[]))];
    chain.extend(namesakes(3).iter().map(ClientCa::der));
    chain.extend([root.der(), root.der(), between.der(), between.der()]);
    // A certificate that names the issuer but may not sign.
    let no_authority = changed(&authority("between"), |one| one.is_ca = IsCa::ExplicitNoCa);
    chain.push(ClientCa::with(&no_authority).der());
    assert_eq!(search(&[root.der()], &chain), Ok((2, true)));
}

/// While roots change, clients send both, each signed by itself and by the other one.
#[test]
fn old_and_new_roots_leave_room_for_the_authorities_between() {
    let roots = [ClientCa::new("root"), ClientCa::new("root")];
    let crossed = [(0, 1), (1, 0)].map(|(root, signer): (usize, usize)| {
        let cross = authority("root").signed_by(roots[root].key(), roots[signer].issuer());
        cross.unwrap().der().clone()
    });
    let first = roots[0].intermediate(&authority("first"));
    let second = first.intermediate(&authority("second"));
    let mut chain = vec![second.sign(&client("alice", &[]))];
    chain.extend(roots.iter().map(ClientCa::der).chain(crossed));
    chain.extend([first.der(), second.der()]);
    for root in roots {
        assert_eq!(verify(&[root.der()], &chain), Ok("alice".to_owned()));
    }
}

#[test]
fn of_authorities_with_one_name_the_one_with_the_named_key_is_tried_first() {
    let all = namesakes(SIGNATURES_MAX + 8);
    let anchors: Vec<_> = all.iter().map(ClientCa::der).collect();
    let named = changed(&client("alice", &[]), |one| {
        one.use_authority_key_identifier_extension = true;
    });
    let chain = [all.last().unwrap().sign(&named)];
    assert_eq!(
        search(&anchors, &chain).map(|(_, is_trusted)| is_trusted),
        Ok(true)
    );
}

#[test]
fn an_authority_may_authenticate_as_a_client() {
    let root = ClientCa::new("root");
    let params = changed(&client("alice", &[]), |one| {
        one.is_ca = authority("ca").is_ca
    });
    assert_eq!(
        verify(&[root.der()], &[root.sign(&params)]),
        Ok("alice".to_owned())
    );
    let mut named = authority("root");
    named
        .distinguished_name
        .push(DnType::OrganizationName, "devs");
    let root = ClientCa::with(&named);
    assert_eq!(verify(&[root.der()], &[root.der()]), Ok("root".to_owned()));
}
