//! Clients at a few addresses that hold whatever they can. Permits are taken back from them for a newcomer.

mod stage;

use std::net::{IpAddr, Ipv4Addr};

use futures::FutureExt;
use tokio::io::AsyncReadExt;

use crate::hostile::frames::{
    ACK, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, frame, head, header,
    settings,
};
use crate::hostile::wire::{code, read_until, send};
use crate::support::random::Random;
use stage::{Connection, HolderStage, NEWCOMER, Transport, UNKNOWN};

/// With fewer addresses than permits, somebody always holds more than a newcomer.
const ADDRESSES: u8 = 5;
/// Each of them may be at each of the addresses.
const USERS: usize = 8;
/// What each run of the property holds, or tries to.
const HOLDS: usize = 60;
/// Requests on a connection of HTTP/2.
const STREAMS: u32 = 20;
/// The first of the newcomer's addresses: it is new with each request.
const NEWCOMERS: u8 = 90;

const PODS: &str = "/api/v1/pods";
const WATCH: &str = "/api/v1/pods?watch=1";
const FORWARDED: &str = "/api/v1/nodes";
const FORWARDED_WATCH: &str = "/api/v1/nodes?watch=1";
/// A list that waits for its version.
const FUTURE: &str = "/api/v1/pods?resourceVersion=999999999";
const TUNNEL: &str = "/api/v1/namespaces/default/pods/a/exec?command=sh";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";

/// What a client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// A connection on which nothing is sent.
    Silence,
    HalfHandshake,
    HalfHead,
    HalfPreface,
    /// A connection after its only response.
    Idle,
    IdleHttp2,
    /// A forwarded request whose body does not come.
    HalfBody,
    Watch,
    ForwardedWatch,
    Tunnel,
    /// A search for a path of certificates.
    ForgedChain,
    /// The next ones are many streams of a connection.
    Watches,
    WaitingLists,
    /// Lists of which nothing is read.
    UnreadLists,
    UnreadForwards,
    /// Reviews that upstream does not answer.
    UnknownTokens,
}

impl Hold {
    const ALL: [Self; 16] = [
        Self::Silence,
        Self::HalfHandshake,
        Self::HalfHead,
        Self::HalfPreface,
        Self::Idle,
        Self::IdleHttp2,
        Self::HalfBody,
        Self::Watch,
        Self::ForwardedWatch,
        Self::Tunnel,
        Self::ForgedChain,
        Self::Watches,
        Self::WaitingLists,
        Self::UnreadLists,
        Self::UnreadForwards,
        Self::UnknownTokens,
    ];

    const fn transport(self) -> Transport {
        match self {
            Self::Silence | Self::HalfHandshake => Transport::Tcp,
            Self::HalfHead
            | Self::HalfPreface
            | Self::Idle
            | Self::HalfBody
            | Self::Watch
            | Self::ForwardedWatch
            | Self::Tunnel => Transport::Http1,
            Self::ForgedChain => Transport::ForgedChain,
            Self::IdleHttp2
            | Self::Watches
            | Self::WaitingLists
            | Self::UnreadLists
            | Self::UnreadForwards
            | Self::UnknownTokens => Transport::Http2,
        }
    }

    /// What the holder with this number sends.
    fn bytes(self, number: usize) -> Vec<u8> {
        let token = &user(number);
        match self {
            Self::Silence => Vec::new(),
            Self::HalfHandshake => b"\x16\x03\x01\x02\x00\x01".to_vec(),
            Self::HalfHead => b"GET /api/v1/pods HTTP/1.1\r\nHost".to_vec(),
            Self::HalfPreface => b"PRI * HTTP/2.0\r\n".to_vec(),
            Self::Idle => get(PODS, token, "").into(),
            Self::IdleHttp2 => streams(&[], "", |_| String::new()),
            Self::HalfBody => {
                let body = "Content-Type: application/json\r\nContent-Length: 1000\r\n";
                (get(FORWARDED, token, body).replace("GET", "POST") + "{").into()
            }
            Self::Watch => get(WATCH, token, "").into(),
            Self::ForwardedWatch => get(FORWARDED_WATCH, token, "").into(),
            Self::Tunnel => get(TUNNEL, token, UPGRADE).into(),
            Self::ForgedChain => format!("GET {PODS} HTTP/1.1\r\nHost: a\r\n\r\n").into(),
            Self::Watches => streams(&[], WATCH, |_| token.clone()),
            Self::WaitingLists => streams(&[], FUTURE, |_| token.clone()),
            Self::UnreadLists => streams(&[(INITIAL_WINDOW_SIZE, 0)], PODS, |_| token.clone()),
            Self::UnreadForwards => {
                streams(&[(INITIAL_WINDOW_SIZE, 0)], FORWARDED, |_| token.clone())
            }
            Self::UnknownTokens => {
                streams(&[], PODS, |stream| format!("{UNKNOWN}-{number}-{stream}"))
            }
        }
    }

    /// Opens it, and waits until the gateway has read what was sent, if that is answered by anything.
    async fn open(
        self,
        stage: &HolderStage,
        from: IpAddr,
        number: usize,
    ) -> Option<Box<dyn Connection>> {
        let mut stream = stage.connect(from, self.transport()).await?;
        send(&mut stream, &self.bytes(number)).await;
        match self {
            Self::Silence
            | Self::HalfHandshake
            | Self::HalfHead
            | Self::HalfPreface
            | Self::HalfBody
            | Self::ForgedChain => {}
            // A refusal, or an end without a byte, is an answer, too.
            Self::Idle | Self::Watch | Self::ForwardedWatch | Self::Tunnel => {
                read_until(&mut stream, |read| !read.is_empty()).await;
            }
            Self::IdleHttp2
            | Self::Watches
            | Self::WaitingLists
            | Self::UnreadLists
            | Self::UnreadForwards
            | Self::UnknownTokens => {
                let answer = frame(PING, ACK, 0, SYNC);
                read_until(&mut stream, |read| {
                    read.windows(answer.len()).any(|part| part == answer)
                })
                .await;
            }
        }
        Some(stream)
    }
}

/// The payload of a PING.
const SYNC: &[u8] = b"are read";

fn get(target: &str, token: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{headers}\r\n")
}

/// A connection's first bytes: these settings, requests for the target if there is one, each with the token of its stream, and a PING.
fn streams(values: &[(u16, u32)], target: &str, token: impl Fn(u32) -> String) -> Vec<u8> {
    let mut bytes = [PREFACE, &settings(values)].concat();
    let count = if target.is_empty() { 0 } else { STREAMS };
    for stream in (1..2 * count).step_by(2) {
        let token = header("authorization", &format!("Bearer {}", token(stream)));
        let block = [head("GET", target), token].concat();
        bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, &block));
    }
    bytes.extend(frame(PING, 0, 0, SYNC));
    bytes
}

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, number))
}

fn user(number: usize) -> String {
    format!("user-{}", number % USERS)
}

async fn start() -> HolderStage {
    HolderStage::new(&tokens(), |_| {}).await
}

fn tokens() -> Vec<String> {
    (0..USERS).map(user).chain([NEWCOMER.to_owned()]).collect()
}

/// The first bytes of the response to this request, on a connection of its own.
async fn ask(stage: &HolderStage, from: u8, transport: Transport, request: &str) -> String {
    let connected = stage.connect(address(from), transport).await;
    let mut stream = connected.unwrap();
    send(&mut stream, request.as_bytes()).await;
    let head = read_until(&mut stream, |read| read.contains(&b'\n')).await;
    String::from_utf8_lossy(&head).into_owned()
}

/// Each request is sent once: a newcomer is served at once, not sooner or later.
async fn check_newcomer(stage: &HolderStage, label: &str) {
    let anonymous = format!("GET {PODS} HTTP/1.1\r\nHost: a\r\n\r\n");
    let rows = [
        (Transport::Http1, get(PODS, NEWCOMER, ""), 200),
        (Transport::Http1, get(WATCH, NEWCOMER, ""), 200),
        (Transport::Http1, get(FORWARDED, NEWCOMER, ""), 200),
        (Transport::Http1, get(FORWARDED_WATCH, NEWCOMER, ""), 200),
        (Transport::Http1, get(TUNNEL, NEWCOMER, UPGRADE), 101),
        (Transport::Certificate, anonymous, 200),
    ];
    for (from, (transport, request, expected)) in (NEWCOMERS..).zip(rows) {
        let response = ask(stage, from, transport, &request).await;
        let code = code(&response);
        assert_eq!(code, expected, "{label}: {transport:?} {request}{response}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_is_served_whatever_a_few_addresses_hold() {
    for seed in 0..4 {
        let stage = start().await;
        let mut random = Random(seed);
        let mut held = Vec::new();
        for number in 0..HOLDS {
            let from = address(2 + u8::try_from(random.below(ADDRESSES.into())).unwrap());
            let hold = random.one_of(&Hold::ALL);
            held.push(hold.open(&stage, from, number).await);
        }
        check_newcomer(&stage, &format!("seed {seed}")).await;
        drop(held);
        stage.shut_down().await;
    }
}

/// All of one kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_is_served_if_all_hold_the_same() {
    for hold in Hold::ALL {
        let stage = start().await;
        let mut held = Vec::new();
        for number in 0..HOLDS {
            let from = address(2 + u8::try_from(number).unwrap() % ADDRESSES);
            held.push(hold.open(&stage, from, number).await);
        }
        check_newcomer(&stage, &format!("{hold:?}")).await;
        drop(held);
        stage.shut_down().await;
    }
}

/// Its client needs to have no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_request_gives_way_to_a_newcomer() {
    let stage =
        HolderStage::new(&tokens(), |settings| settings.admission.connections_max = 4).await;
    let mut used = Vec::new();
    for from in 2..5 {
        let stream = Hold::Watch.open(&stage, address(from), 0).await;
        used.push(stream.unwrap());
    }
    let unused = Hold::HalfHead.open(&stage, address(5), 0).await;
    let list = get(PODS, NEWCOMER, "");
    let response = ask(&stage, NEWCOMERS, Transport::Http1, &list).await;
    assert_eq!(code(&response), 200, "{response}");
    assert_eq!(read_until(&mut unused.unwrap(), |_| false).await, b"");
    for stream in &mut used {
        let read = stream.read(&mut [0]).now_or_never();
        assert!(!matches!(read, Some(Ok(0) | Err(_))), "{read:?}");
    }
    stage.shut_down().await;
}
