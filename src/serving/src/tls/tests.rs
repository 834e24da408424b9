//! Tests of handshakes over in-memory streams, and of files that change.

pub(crate) mod samples;

use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::possession::{CHAIN_BYTES_MAX, CHAIN_LEN_MAX};
use super::*;
use samples::{Authority, Folder, Pair, client, connector, named};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// The files of a server with a named certificate and client authorities.
struct Stage {
    folder: Folder,
    authority: Authority,
    files: TlsFiles,
}

impl Stage {
    fn new() -> Self {
        let folder = Folder::create();
        let authority = Authority::new("clients");
        let pair = |name: &str| write_pair(&folder, name, &Authority::new("servers").sign(name));
        let other = pair("other.test");
        let files = TlsFiles {
            default: pair("default.test"),
            named: vec![SniCertificate {
                cert: other.cert,
                key: other.key,
                names: Vec::new(),
            }],
            client_authorities: vec![folder.write("ca.pem", authority.0.pem())],
        };
        Self {
            folder,
            authority,
            files,
        }
    }

    fn server(&self) -> ServerIdentity {
        ServerIdentity::read(self.files.clone()).unwrap()
    }
}

fn write_pair(folder: &Folder, name: &str, pair: &Pair) -> PairFiles {
    PairFiles {
        cert: folder.write(&format!("{name}.crt"), pair.cert_pem()),
        key: folder.write(&format!("{name}.key"), pair.key_pem()),
    }
}

/// What both sides learned in a handshake.
struct HandshakeResult {
    /// The chain that the client presented.
    client_chain: Vec<CertificateDer<'static>>,
    /// The certificate that the server presented.
    server_certificate: CertificateDer<'static>,
    kind: HandshakeKind,
}

async fn perform_handshake(
    server: &ServerIdentity,
    connector: &TlsConnector,
    name: &str,
) -> std::io::Result<HandshakeResult> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let acceptor = TlsAcceptor::from(server.config().load_full());
    let serve = async {
        let mut stream = acceptor.accept(far).await?;
        stream.write_all(b"!").await?;
        let session = stream.get_ref().1;
        let shown = session.peer_certificates().unwrap_or_default().to_vec();
        let kind = session.handshake_kind().unwrap();
        stream.shutdown().await?;
        Ok::<_, std::io::Error>((shown, kind))
    };
    let connect = async {
        let mut stream = connector.connect(named(name), near).await?;
        // Reads to the end, because TLS 1.3 session tickets and the refusal of a client certificate arrive after the handshake.
        stream.read_to_end(&mut Vec::new()).await?;
        let shown = stream.get_ref().1.peer_certificates().unwrap();
        Ok::<_, std::io::Error>(shown[0].clone())
    };
    let (served, connected) = tokio::join!(serve, connect);
    let (client_chain, kind) = served?;
    Ok(HandshakeResult {
        client_chain,
        server_certificate: connected?,
        kind,
    })
}

#[tokio::test]
async fn a_certificate_is_known_after_the_handshake_and_none_is_needed() {
    let stage = Stage::new();
    let server = stage.server();
    let alice = stage.authority.sign("alice");
    let chain = vec![alice.der(), stage.authority.0.der().clone()];
    for version in VERSIONS {
        let with = connector(client(version, Some(alice.presenting(chain.clone()))));
        let handshake = perform_handshake(&server, &with, "default.test")
            .await
            .unwrap();
        assert_eq!(handshake.client_chain, chain, "{version:?}");
        let without = connector(client(version, None));
        let handshake = perform_handshake(&server, &without, "default.test")
            .await
            .unwrap();
        assert!(handshake.client_chain.is_empty(), "{version:?}");
        // A certificate of an unknown authority is refused by the response to a request, not by the handshake.
        let foreign = Authority::new("others").sign("mallory");
        let foreign = connector(client(
            version,
            Some(foreign.presenting(vec![foreign.der()])),
        ));
        let handshake = perform_handshake(&server, &foreign, "default.test")
            .await
            .unwrap();
        assert_eq!(handshake.client_chain.len(), 1, "{version:?}");
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_ends_the_handshake() {
    let stage = Stage::new();
    let server = stage.server();
    let (alice, mallory) = (
        stage.authority.sign("alice"),
        stage.authority.sign("mallory"),
    );
    for version in VERSIONS {
        let stolen = mallory.presenting(vec![alice.der()]);
        let thief = connector(client(version, Some(stolen)));
        let refused = perform_handshake(&server, &thief, "default.test")
            .await
            .err()
            .unwrap();
        assert!(
            refused.to_string().contains("BadSignature"),
            "{version:?}: {refused}"
        );
    }
}

#[tokio::test]
async fn a_resumed_session_has_the_certificates_of_the_one_before() {
    let stage = Stage::new();
    let (alice, bob) = (stage.authority.sign("alice"), stage.authority.sign("bob"));
    for version in VERSIONS {
        stage.folder.write("ca.pem", stage.authority.0.pem());
        let server = stage.server();
        let config = client(version, Some(alice.presenting(vec![alice.der()])));
        let alices = connector(config.clone());
        let handshake = perform_handshake(&server, &alices, "default.test")
            .await
            .unwrap();
        assert_ne!(handshake.kind, HandshakeKind::Resumed);
        let handshake = perform_handshake(&server, &alices, "default.test")
            .await
            .unwrap();
        assert_eq!(handshake.kind, HandshakeKind::Resumed, "{version:?}");
        assert_eq!(handshake.client_chain, [alice.der()], "{version:?}");
        // Another client does not resume this client's session, even for another name.
        let bobs = connector(client(version, Some(bob.presenting(vec![bob.der()]))));
        for name in ["default.test", "other.test"] {
            let handshake = perform_handshake(&server, &bobs, name).await.unwrap();
            assert_eq!(handshake.client_chain, [bob.der()], "{version:?}");
        }
        // Sessions are not resumed after the configuration was replaced.
        let bundle = [stage.authority.0.pem(), Authority::new("new").0.pem()].concat();
        stage.folder.write("ca.pem", bundle);
        server.reload_authorities().unwrap();
        let handshake = perform_handshake(&server, &alices, "default.test")
            .await
            .unwrap();
        assert_ne!(handshake.kind, HandshakeKind::Resumed, "{version:?}");
        assert_eq!(handshake.client_chain, [alice.der()]);
    }
}

#[tokio::test]
async fn a_session_without_certificate_is_resumed_without_one() {
    let stage = Stage::new();
    let server = stage.server();
    for version in VERSIONS {
        let nobody = connector(client(version, None));
        for _ in 0..2 {
            let handshake = perform_handshake(&server, &nobody, "default.test")
                .await
                .unwrap();
            assert!(handshake.client_chain.is_empty(), "{version:?}");
        }
    }
}

#[tokio::test]
async fn a_chain_that_is_too_long_or_too_large_ends_the_handshake() {
    let stage = Stage::new();
    let server = stage.server();
    let alice = stage.authority.sign("alice");
    let long = |count| vec![alice.der(); count];
    let large = |length: usize| {
        let rest = CertificateDer::from(vec![0x30; length - alice.der().len()]);
        vec![alice.der(), rest]
    };
    for version in VERSIONS {
        for (chain, is_taken) in [
            (long(CHAIN_LEN_MAX), true),
            (long(CHAIN_LEN_MAX + 1), false),
            (large(CHAIN_BYTES_MAX), true),
            (large(CHAIN_BYTES_MAX + 1), false),
        ] {
            let length = chain.len();
            let connector = connector(client(version, Some(alice.presenting(chain))));
            let handshake = perform_handshake(&server, &connector, "default.test").await;
            assert_eq!(handshake.is_ok(), is_taken, "{version:?} {length}");
        }
    }
}

#[tokio::test]
async fn nobody_is_asked_for_a_certificate_without_authorities() {
    let mut stage = Stage::new();
    stage.files.client_authorities.clear();
    let server = stage.server();
    let alice = stage.authority.sign("alice");
    for version in VERSIONS {
        let config = client(version, Some(alice.presenting(vec![alice.der()])));
        let handshake = perform_handshake(&server, &connector(config), "default.test")
            .await
            .unwrap();
        assert!(handshake.client_chain.is_empty());
    }
}

#[tokio::test]
async fn the_name_that_a_client_asks_for_chooses_the_certificate() {
    let stage = Stage::new();
    let server = stage.server();
    for version in VERSIONS {
        let connector = connector(client(version, None));
        let shown = |name: &'static str| {
            let handshake = perform_handshake(&server, &connector, name);
            async move { handshake.await.unwrap().server_certificate }
        };
        let (default, other) = (shown("default.test").await, shown("other.test").await);
        assert_ne!(default, other);
        assert_eq!(shown("unknown.test").await, default);
        assert_eq!(shown("127.0.0.1").await, default);
    }
}

#[tokio::test]
async fn files_that_change_are_in_force_from_the_next_connection_on() {
    let stage = Stage::new();
    let server = stage.server();
    let anyone = connector(client(&TLS13, None));
    let before = perform_handshake(&server, &anyone, "default.test")
        .await
        .unwrap();
    let next = Authority::new("servers").sign("default.test");
    stage.folder.write("default.test.crt", next.cert_pem());
    // Only the certificate has changed, not its key: the old pair stays in force.
    let refused = server.reload_certificates().unwrap_err().to_string();
    assert!(refused.contains("default.test.crt"), "{refused}");
    let handshake = perform_handshake(&server, &anyone, "default.test")
        .await
        .unwrap();
    assert_eq!(handshake.server_certificate, before.server_certificate);
    stage.folder.write("default.test.key", next.key_pem());
    server.reload_certificates().unwrap();
    let handshake = perform_handshake(&server, &anyone, "default.test")
        .await
        .unwrap();
    assert_eq!(handshake.server_certificate, next.der());
    assert_ne!(handshake.kind, HandshakeKind::Resumed);
}

#[tokio::test]
async fn a_broken_pair_does_not_hold_up_the_others() {
    let stage = Stage::new();
    let server = stage.server();
    let anyone = connector(client(&TLS13, None));
    let before = perform_handshake(&server, &anyone, "default.test")
        .await
        .unwrap();
    for broken in [
        "",
        "nothing",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ] {
        stage.folder.write("default.test.crt", broken);
        let next = Authority::new("servers").sign("other.test");
        write_pair(&stage.folder, "other.test", &next);
        let refused = server.reload_certificates().unwrap_err().to_string();
        assert!(refused.contains("default.test.crt"), "{refused}");
        let handshake = perform_handshake(&server, &anyone, "other.test")
            .await
            .unwrap();
        assert_eq!(handshake.server_certificate, next.der());
        let handshake = perform_handshake(&server, &anyone, "default.test")
            .await
            .unwrap();
        assert_eq!(handshake.server_certificate, before.server_certificate);
    }
    std::fs::remove_file(stage.folder.0.join("default.test.crt")).unwrap();
    server.reload_certificates().unwrap_err();
    perform_handshake(&server, &anyone, "default.test")
        .await
        .unwrap();
}

#[tokio::test]
async fn authorities_that_cannot_be_read_leave_the_old_ones() {
    let stage = Stage::new();
    let server = stage.server();
    let hints = |server: &ServerIdentity| server.parts().authorities.subjects().len();
    assert_eq!(hints(&server), 1);
    for broken in ["", "nothing"] {
        stage.folder.write("ca.pem", broken);
        let refused = server.reload_authorities().unwrap_err().to_string();
        assert!(refused.contains("ca.pem"), "{refused}");
        assert_eq!(hints(&server), 1);
    }
    let bundle = [stage.authority.0.pem(), Authority::new("new").0.pem()].concat();
    stage.folder.write("ca.pem", bundle);
    server.reload_authorities().unwrap();
    assert_eq!(hints(&server), 2);
}

#[test]
fn the_first_expiry_of_all_certificates_counts() {
    let stage = Stage::new();
    let mut params = rcgen::CertificateParams::new(["other.test".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 9, 9);
    let old = Authority::new("servers").sign_with(&params);
    let server = stage.server();
    assert!(server.expires_at().unwrap() > 1_000_000_000);
    write_pair(&stage.folder, "other.test", &old);
    server.reload_certificates().unwrap();
    assert_eq!(server.expires_at(), Some(999_993_600));
}

#[test]
fn what_cannot_be_used_at_start_is_named() {
    let stage = Stage::new();
    let mut files = stage.files.clone();
    files.named[0].names = vec!["10.0.0.1".to_owned()];
    let refused = ServerIdentity::read(files).err().unwrap().to_string();
    assert!(refused.contains("10.0.0.1"), "{refused}");
    let mut files = stage.files.clone();
    files
        .client_authorities
        .push(stage.folder.write("empty.pem", ""));
    let refused = ServerIdentity::read(files).err().unwrap().to_string();
    assert!(refused.contains("empty.pem"), "{refused}");
    let mut files = stage.files.clone();
    files.named[0].key = files.default.key.clone();
    let refused = ServerIdentity::read(files).err().unwrap().to_string();
    assert!(refused.contains("other.test.crt"), "{refused}");
}
