//! One connection: TCP, then TLS, each by itself, and what the other side showed.

use std::io;
use std::sync::Arc;

use http::{Uri, uri};
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::certificates::CertificateFacts;
use super::parallel::STEP_TIME_MAX;
use super::verdict::CheckVerdict;

const HTTP2: &[u8] = b"h2";
/// A name of a load balancer has a few addresses.
const ADDRESSES_MAX: usize = 16;

/// What the other side of a TLS connection showed.
pub(super) struct TlsFacts {
    /// Its certificate, unless that cannot be read.
    pub(super) certificate: Option<CertificateFacts>,
    /// Whether it chose HTTP/2.
    pub(super) is_http2: bool,
}

/// Host and port.
pub(super) fn address_of(url: &Uri) -> (String, u16) {
    let port = match url.scheme_str() {
        Some("http") => 80,
        Some(_) | None => 443,
    };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    (host.to_owned(), url.port_u16().unwrap_or(port))
}

/// Host and port as text.
pub(super) fn name_of(url: &Uri) -> String {
    let (_, port) = address_of(url);
    format!("{}:{port}", url.host().unwrap_or_default())
}

pub(super) fn is_tls(url: &Uri) -> bool {
    url.scheme() == Some(&uri::Scheme::HTTPS)
}

/// Opens a connection to the address of the name that answers first: one that drops packets must not hide the others.
pub(super) async fn connect(url: &Uri) -> io::Result<TcpStream> {
    // The lookup of a name has its own, longer, timeouts.
    within_a_step(async {
        let mut attempts = JoinSet::new();
        for address in lookup_host(address_of(url)).await?.take(ADDRESSES_MAX) {
            attempts.spawn(TcpStream::connect(address));
        }
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        while let Some(attempt) = attempts.join_next().await {
            match attempt.map_err(io::Error::other)? {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    })
    .await
}

async fn within_a_step<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let overdue = |_| {
        let text = format!("no answer within {} s", STEP_TIME_MAX.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    timeout(STEP_TIME_MAX, step).await.map_err(overdue)?
}

/// Establishes TLS, as clients do.
pub(super) async fn establish_tls(
    url: &Uri,
    config: &Arc<ClientConfig>,
    server_name: Option<&str>,
) -> io::Result<TlsFacts> {
    let (host, _) = address_of(url);
    let name = server_name.unwrap_or(&host).to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    let stream = connect(url).await?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = within_a_step(handshake).await?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    Ok(TlsFacts {
        certificate: certificate.and_then(|der| CertificateFacts::read(der)),
        is_http2: session.alpn_protocol() == Some(HTTP2),
    })
}

/// A failure to connect, with what to do.
pub(super) fn unreachable(address: &str, error: &io::Error) -> CheckVerdict {
    use io::ErrorKind as Kind;
    let kind = error.kind();
    let hint = if kind == Kind::ConnectionRefused {
        "nothing listens at this address: check host and port, and whether the server runs"
    } else if matches!(
        kind,
        Kind::TimedOut | Kind::HostUnreachable | Kind::NetworkUnreachable
    ) {
        "check routes, firewalls and network policies on the way"
    } else {
        "check that the host name resolves here, and the network on the way"
    };
    CheckVerdict::failure(format!("cannot connect to {address}: {error}"), hint)
}

/// A failure of the handshake, with what to do. `authority` names the setting with the authority.
pub(super) fn untrusted(address: &str, error: &io::Error, authority: &str) -> CheckVerdict {
    let text = format!("no TLS connection to {address}: {error}");
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(fault)) = cause else {
        return CheckVerdict::failure(
            text,
            "check that the port speaks TLS, and that the URL's scheme is right",
        );
    };
    let hint = if is_of_name(fault) {
        "use a name that the certificate has, or issue a certificate with this name".to_owned()
    } else if is_of_time(fault) {
        "renew the certificate, or set the clock".to_owned()
    } else {
        format!("the certificate must be issued by an authority in {authority}")
    };
    CheckVerdict::failure(text, hint)
}

fn is_of_name(fault: &CertificateError) -> bool {
    use CertificateError as Fault;
    matches!(
        fault,
        Fault::NotValidForName | Fault::NotValidForNameContext { .. }
    )
}

fn is_of_time(fault: &CertificateError) -> bool {
    use CertificateError as Fault;
    matches!(
        fault,
        Fault::Expired
            | Fault::ExpiredContext { .. }
            | Fault::NotValidYet
            | Fault::NotValidYetContext { .. }
    )
}
