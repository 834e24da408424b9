//! Handshakes with servers whose authority is unknown, replaced, or not looked at.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::client::{Client, ConnectSource, RequestBody, SendError, transport};
use crate::samples::certificates::{Authority, Folder};

/// The address of a server with a certificate of this authority for `localhost`.
async fn server(authority: &Authority) -> String {
    transport::install_crypto_provider();
    let pair = authority.sign("localhost");
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem().as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![pair.der()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate ends the handshake.
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let service =
                service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    format!("https://localhost:{port}")
}

async fn status(client: &Client) -> Result<StatusCode, SendError> {
    let request = Request::get("/api").body(RequestBody::Empty).unwrap();
    client.send(request).await.map(|response| response.status())
}

#[tokio::test]
async fn authorities_that_are_replaced_are_read_when_the_server_is_not_trusted() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let url = server(&new).await;
    let folder = Folder::create();
    let ca_file = folder.write("ca.pem", old.0.pem());
    let source = ConnectSource::Url {
        url: url.parse().unwrap(),
        ca_file: Some(ca_file),
    };
    let client = Client::connect(source).await.unwrap();
    folder.write("ca.pem", new.0.pem());
    assert!(matches!(
        status(&client).await,
        Err(SendError::Untrusted(_))
    ));
    assert_eq!(status(&client).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn a_kubeconfig_may_say_that_the_server_is_not_verified() {
    let url = server(&Authority::new("nobody's")).await;
    let folder = Folder::create();
    let config = format!(
        "
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: '{url}', insecure-skip-tls-verify: true}}}}]
contexts: [{{name: here, context: {{cluster: here}}}}]
"
    );
    let source = ConnectSource::kubeconfig(folder.write("config", config));
    let client = Client::connect(source).await.unwrap();
    assert_eq!(status(&client).await.unwrap(), StatusCode::OK);
}
