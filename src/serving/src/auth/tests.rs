//! Test support: an API server that sends scripted responses and records the requests, and an authority that signs client certificates.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::certificate::ClientAuthorities;
use crate::upstream::client::{Client, ConnectSource};

/// An HTTP server whose responses are a function of the request. Each connection serves one request.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// `answer` returns the whole response, including its head, to a request with head and body; `None` for no response.
    pub(crate) async fn new<F>(answer: F) -> Self
    where
        F: Fn(&str) -> Option<String> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (recorded, answer) = (Arc::clone(&requests), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (recorded, answer) = (Arc::clone(&recorded), Arc::clone(&answer));
                tokio::spawn(async move {
                    let request = read(&mut socket).await;
                    recorded.lock().unwrap().push(request.clone());
                    match answer(&request) {
                        Some(text) => drop(socket.write_all(text.as_bytes()).await),
                        // No response: keeps the connection open until the client closes it.
                        None => drop(socket.read(&mut [0; 1]).await),
                    }
                });
            }
        });
        let client = Client::connect(ConnectSource::url(&url).unwrap());
        Self {
            client: client.await.unwrap(),
            url,
            requests,
        }
    }

    /// The requests so far, each with head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn read(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let len = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= len.map_or(0, |len| len.parse().unwrap()) {
                return text.into_owned();
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

/// A response with this status line and body.
pub(crate) fn response(status: &str, body: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ))
}

/// An authority that signs client certificates.
pub(crate) struct ClientCa(CertifiedIssuer<'static, KeyPair>);

impl ClientCa {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(&authority(name))
    }

    pub(crate) fn with(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params.clone(), key).unwrap())
    }

    /// An intermediate authority, signed by this one.
    pub(crate) fn intermediate(&self, params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::signed_by(params.clone(), key, &self.0).unwrap())
    }

    pub(crate) fn key(&self) -> &KeyPair {
        self.0.key()
    }

    pub(crate) fn issuer(&self) -> &CertifiedIssuer<'static, KeyPair> {
        &self.0
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(crate) fn authorities(&self) -> ClientAuthorities {
        ClientAuthorities::from_pem(self.pem().as_bytes()).unwrap()
    }

    pub(crate) fn sign(&self, params: &CertificateParams) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &self.0).unwrap().der().clone()
    }
}

/// Parameters of an authority's certificate.
pub(crate) fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Parameters of a client's certificate, valid from 2020-01-01 to 2040-01-01. At most two groups.
pub(crate) fn client(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    if !name.is_empty() {
        subject.push(DnType::CommonName, name);
    }
    // The library keeps one value of each type, so the second group has the same OID as a custom type.
    let types = [
        DnType::OrganizationName,
        DnType::CustomDnType(vec![2, 5, 4, 10]),
    ];
    for (kind, group) in types.into_iter().zip(groups) {
        subject.push(kind, *group);
    }
    params.distinguished_name = subject;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    params
}

/// Midnight of a day in UTC.
pub(crate) fn day(year: i32, month: u8, day: u8) -> SystemTime {
    date_time_ymd(year, month, day).into()
}
