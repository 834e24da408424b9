//! The server under test: its address, TLS and the caller's credentials.
//!
//! Both kinds of clients start here: the swarm's own, which needs request text and a rustls configuration, and hyper's.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::{Method, Request};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};

/// Longest time to connect, TLS included.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Longest segment that a slow client accepts, as on an Ethernet, bytes. With loopback's 64 KiB the server's send buffer holds megabytes
/// instead of some 100 KiB, and hide for long that the client does not read.
const SLOW_SEGMENT_LEN: u32 = 1_448;

/// The client's name in requests.
pub const USER_AGENT: &str = "kube-fanout-loadtest";

/// A server and the caller's identity.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    /// Host and port as written in requests.
    pub authority: String,
    /// TLS, if the URL said https.
    pub tls: Option<Tls>,
    pub token: Option<String>,
    /// Accept-Encoding: `gzip` or `identity`.
    pub encoding: &'static str,
    /// Number of users that the clients of a swarm act as in turn, each with its own [token](user_token); 0 if all clients have one token.
    pub users: usize,
}

/// The token of the user with this number.
pub fn user_token(number: usize) -> String {
    format!("token-of-user-{number}")
}

/// Root certificates and name for TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    roots: Arc<RootCertStore>,
    /// The name the certificate must carry.
    pub name: ServerName<'static>,
}

impl Tls {
    /// A client configuration that offers one application protocol.
    pub fn config(&self, protocol: &str) -> Arc<ClientConfig> {
        let mut config = ClientConfig::builder()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Arc::new(config)
    }

    /// Like [`Self::config`], for a client that presents these certificates.
    pub fn config_as(
        &self,
        protocol: &str,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<ClientConfig>> {
        let mut config = ClientConfig::builder()
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Ok(Arc::new(config))
    }
}

/// A non-blocking socket that will connect to `address` from `source`; with a receive buffer in bytes for slow clients.
pub fn source_socket(
    address: SocketAddr,
    source: Ipv4Addr,
    receive_buffer: Option<usize>,
) -> Result<Socket> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(len) = receive_buffer {
        socket.set_recv_buffer_size(len)?;
        socket.set_tcp_mss(SLOW_SEGMENT_LEN)?;
    }
    // For the usual address the system chooses, and may use one port for several peers.
    if source != Ipv4Addr::LOCALHOST {
        socket
            .bind(&SocketAddr::from((source, 0)).into())
            .with_context(|| format!("source address {source}"))?;
    }
    Ok(socket)
}

/// A connection from such a socket.
pub async fn connect_socket(address: SocketAddr, socket: Socket) -> Result<TcpStream> {
    let socket = TcpSocket::from_std_stream(socket.into());
    Ok(socket.connect(address).await?)
}

/// A byte stream to the server, plain or TLS.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

impl Target {
    /// Reads a URL such as `http://127.0.0.1:8001`; `token` may be `@FILE`.
    pub fn new(url: &str, token: Option<&str>, ca: Option<&Path>) -> Result<Self> {
        Self::with_roots(url, token, || {
            let ca = ca.context("https needs --ca FILE")?;
            let mut roots = RootCertStore::empty();
            for certificate in
                CertificateDer::pem_file_iter(ca).with_context(|| ca.display().to_string())?
            {
                roots.add(certificate?)?;
            }
            Ok(roots)
        })
    }

    /// A server without credentials, trusted by this PEM certificate if the URL is https.
    pub fn trusting(url: &str, certificate: &[u8]) -> Result<Self> {
        Self::with_roots(url, None, || {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(certificate)?)?;
            Ok(roots)
        })
    }

    fn with_roots(
        url: &str,
        token: Option<&str>,
        roots: impl FnOnce() -> Result<RootCertStore>,
    ) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once("://") else {
            bail!("{url}: a URL begins with http:// or https://")
        };
        let authority = rest.trim_end_matches('/').to_owned();
        let default_port = if scheme == "https" { 443 } else { 80 };
        let with_port = if authority.contains(':') {
            authority.clone()
        } else {
            format!("{authority}:{default_port}")
        };
        let address = with_port
            .to_socket_addrs()
            .with_context(|| url.to_owned())?
            .next()
            .with_context(|| format!("{url}: no address"))?;
        let tls = match scheme {
            "http" => None,
            "https" => {
                let host = with_port
                    .rsplit_once(':')
                    .map_or(with_port.as_str(), |(host, _)| host);
                let name = ServerName::try_from(host.to_owned()).with_context(|| url.to_owned())?;
                Some(Tls {
                    roots: Arc::new(roots()?),
                    name,
                })
            }
            other => bail!("{url}: unknown scheme {other}"),
        };
        let token = match token {
            None | Some("") => None,
            Some(text) => Some(match text.strip_prefix('@') {
                Some(file) => std::fs::read_to_string(file)
                    .with_context(|| file.to_owned())?
                    .trim()
                    .to_owned(),
                None => text.to_owned(),
            }),
        };
        Ok(Self {
            address,
            authority,
            tls,
            token,
            encoding: "identity",
            users: 0,
        })
    }

    /// The same server with the credentials of the client with this number.
    pub fn of_client(&self, number: usize) -> Cow<'_, Self> {
        if self.users == 0 {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            token: Some(user_token(number % self.users)),
            ..self.clone()
        })
    }

    /// The same server, with compressed responses.
    #[must_use]
    pub fn compressing(self) -> Self {
        Self {
            encoding: "gzip",
            ..self
        }
    }

    /// The text of an HTTP/1.1 GET for this media type.
    pub fn fetch_text_as(&self, path: &str, accept: &str) -> Vec<u8> {
        self.fetch_text(path, accept, "")
    }

    /// Like [`Self::fetch_text_as`], with more headers, each with its line end.
    pub fn fetch_text(&self, path: &str, accept: &str, headers: &str) -> Vec<u8> {
        let mut text = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {USER_AGENT}\r\nAccept: {accept}\r\nAccept-Encoding: {}\r\n",
            self.authority, self.encoding
        );
        if let Some(token) = &self.token {
            text.push_str("Authorization: Bearer ");
            text.push_str(token);
            text.push_str("\r\n");
        }
        text.push_str(headers);
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// A path as an absolute URL, for HTTP/2.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.authority)
    }

    /// A request by hyper, with the caller's credentials.
    pub fn request(&self, method: Method, url: &str) -> hyper::http::request::Builder {
        let request = Request::builder().method(method).uri(url);
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// A connection for hyper; `protocol` is the application protocol for TLS (`http/1.1` or `h2`).
    pub async fn connect(&self, protocol: &str) -> Result<Box<dyn ByteStream>> {
        self.connect_from(Ipv4Addr::LOCALHOST, protocol).await
    }

    /// Like [`Self::connect`], from a local address.
    pub async fn connect_from(
        &self,
        source: Ipv4Addr,
        protocol: &str,
    ) -> Result<Box<dyn ByteStream>> {
        let config = self.tls.as_ref().map(|tls| tls.config(protocol));
        self.connect_with(source, config).await
    }

    /// Like [`Self::connect_from`], with this configuration if the server has TLS.
    pub async fn connect_with(
        &self,
        source: Ipv4Addr,
        config: Option<Arc<ClientConfig>>,
    ) -> Result<Box<dyn ByteStream>> {
        let connecting = async {
            let socket = source_socket(self.address, source, None)?;
            let tcp = connect_socket(self.address, socket).await?;
            Ok::<Box<dyn ByteStream>, anyhow::Error>(match self.tls.as_ref().zip(config) {
                None => Box::new(tcp),
                Some((tls, config)) => {
                    let connector = tokio_rustls::TlsConnector::from(config);
                    Box::new(connector.connect(tls.name.clone(), tcp).await?)
                }
            })
        };
        let result = tokio::time::timeout(CONNECT_WAIT, connecting).await;
        result
            .with_context(|| format!("{}: no connection within {CONNECT_WAIT:?}", self.authority))?
            .with_context(|| self.authority.clone())
    }
}
