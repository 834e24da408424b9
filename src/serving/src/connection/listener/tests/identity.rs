//! Requests carry the TLS client certificates of their connection.

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use super::*;
use crate::tls::ServerIdentity;
use crate::tls::tests::samples::{Authority, Folder, Pair, client, connector, named, server_files};

/// Answers with the number of certificates that the request carries, followed by the first of them.
fn echo_identity() -> impl Resources {
    forwarding(|request: ForwardRequest| {
        let identity = request.request.connection.identity;
        assert_eq!(identity.peer, request.caller.peer);
        assert_eq!(identity.peer, IpAddr::from([127, 0, 0, 1]).into());
        let count = [u8::try_from(identity.certificates.len()).unwrap()];
        let first = identity.certificates.first();
        let first = first.map_or(&[][..], |certificate| certificate.as_ref());
        boxed(Response::new(Full::from([&count, first].concat())))
    })
}

struct Server {
    address: std::net::SocketAddr,
    _folder: Folder,
    _running: JoinSet<()>,
}

async fn serve(authority: &Authority, tls: bool) -> Server {
    let folder = Folder::create();
    let client_authorities = vec![folder.write("ca.pem", authority.0.pem())];
    let files = server_files(&folder, client_authorities);
    let tls = tls.then(|| ServerIdentity::read(files).unwrap().config());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut running = JoinSet::new();
    running.spawn(run(
        listener,
        tls,
        Service::new(
            Arc::new(echo_identity()),
            unlimited(),
            Metrics::new().unwrap().listener(),
        ),
        Drain::new(),
    ));
    Server {
        address,
        _folder: folder,
        _running: running,
    }
}

async fn response<S>(io: S, version: Version) -> Bytes
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    use http_body_util::BodyExt;
    let request = Request::get("http://localhost/version").header("host", "localhost");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let mut tasks = JoinSet::new();
    let answer = if version == Version::HTTP_2 {
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(io)).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io))
            .await
            .unwrap();
        tasks.spawn(async move { drop(connection.await) });
        sender.send_request(request).await.unwrap()
    };
    answer.into_body().collect().await.unwrap().to_bytes()
}

async fn response_over_tls(
    server: &Server,
    tls: &'static SupportedProtocolVersion,
    version: Version,
    presented: Option<&Pair>,
) -> Bytes {
    let presented = presented.map(|pair| pair.presenting(vec![pair.der()]));
    let mut config = client(tls, presented);
    let protocol = if version == Version::HTTP_2 {
        "h2"
    } else {
        "http/1.1"
    };
    config.alpn_protocols = vec![protocol.into()];
    let socket = TcpStream::connect(server.address).await.unwrap();
    let stream = connector(config)
        .connect(named("localhost"), socket)
        .await
        .unwrap();
    response(stream, version).await
}

#[tokio::test]
async fn requests_carry_the_certificates_of_their_connection() {
    let authority = Authority::new("clients");
    let server = serve(&authority, true).await;
    let (alice, bob) = (authority.sign("alice"), authority.sign("bob"));
    for tls in [&TLS12, &TLS13] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for pair in [&alice, &bob] {
                let body = response_over_tls(&server, tls, version, Some(pair)).await;
                assert_eq!(
                    (body[0], &body[1..]),
                    (1, &*pair.der()),
                    "{tls:?} {version:?}"
                );
            }
            let body = response_over_tls(&server, tls, version, None).await;
            assert_eq!(body, [0][..], "{tls:?} {version:?}");
        }
    }
}

#[tokio::test]
async fn requests_in_clear_text_carry_no_certificate() {
    let server = serve(&Authority::new("clients"), false).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let socket = TcpStream::connect(server.address).await.unwrap();
        assert_eq!(response(socket, version).await, [0][..], "{version:?}");
    }
}
