//! A client's request as its connection hands it to the service. Its head is parsed here and nowhere later.

use std::net::{IpAddr, Ipv4Addr};

use http::Request;
use hyper::body::Incoming;
use jiff::Timestamp;

use crate::auth::caller::PeerIdentity;
use crate::protocol::request::RequestInfo;
use crate::watch::WatchRecall;

/// A request with its parsed head and with what its connection knows about the client. It moves through many futures, so it is boxed.
#[derive(Debug)]
pub struct ClientRequest {
    /// The request as it was received.
    pub http: Request<Incoming>,
    /// The request line and the headers that decide how it is answered.
    pub info: RequestInfo,
    /// Who is on the connection, and from where.
    pub connection: ConnectInfo,
    /// When it was received.
    pub received_at: Timestamp,
}

/// What a connection knows about its client.
#[derive(Clone, Debug)]
pub struct ConnectInfo {
    /// The client's certificates, and the peer that its requests count for.
    pub identity: PeerIdentity,
    /// The client's address.
    pub address: IpAddr,
    /// Whether the connection can become a WebSocket.
    pub can_upgrade: bool,
    /// Ends its watches when the connection is recalled; `None` if that never happens.
    pub recall: Option<WatchRecall>,
}

impl Default for ConnectInfo {
    fn default() -> Self {
        Self {
            identity: PeerIdentity::default(),
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            can_upgrade: false,
            recall: None,
        }
    }
}

impl ClientRequest {
    /// Parses the head of a request that has been received on this connection.
    #[must_use]
    pub fn new(http: Request<Incoming>, connection: ConnectInfo) -> Box<Self> {
        Box::new(Self {
            info: RequestInfo::of(&http),
            http,
            connection,
            received_at: Timestamp::now(),
        })
    }
}

impl From<Request<Incoming>> for Box<ClientRequest> {
    /// A request of an unknown client.
    fn from(http: Request<Incoming>) -> Self {
        ClientRequest::new(http, ConnectInfo::default())
    }
}
