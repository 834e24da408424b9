//! Clients at a few addresses that hold whatever they can. Permits are taken back from them for a newcomer. The embedded API server opens no
//! tunnels; those are in `passthrough::ends`.

use std::net::{IpAddr, Ipv4Addr};

use kube_fanout::config::ServeSettings;
use tokio::net::TcpStream;

use crate::hostile::fairness::connect;
use crate::hostile::frames::settings;
use crate::hostile::stage::Stage;
use crate::hostile::wire::{code, read_until, send};
use crate::support::random::Random;

/// Connections, watches, and requests of each kind that are forwarded at a time.
const LIMIT: usize = 12;
/// With fewer addresses than permits, somebody always holds more than a newcomer.
const ADDRESSES: u8 = 5;
/// What each run of the property holds, or tries to.
const HOLDS: usize = 60;
const NEWCOMER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 99));

const LIST: &str = "GET /api/v1/pods HTTP/1.1\r\nHost: a\r\n\r\n";
const WATCH: &str = "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n";
const FORWARDED: &str = "GET /api/v1/nodes HTTP/1.1\r\nHost: a\r\n\r\n";
const FORWARDED_WATCH: &str = "GET /api/v1/nodes?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n";

/// What a client holds.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// A connection on which nothing is sent.
    Silence,
    HalfHead,
    HalfPreface,
    /// A connection after its only response.
    Idle,
    IdleHttp2,
    /// A forwarded request whose body does not come.
    HalfBody,
    Watch,
    ForwardedWatch,
}

impl Hold {
    const ALL: [Self; 8] = [
        Self::Silence,
        Self::HalfHead,
        Self::HalfPreface,
        Self::Idle,
        Self::IdleHttp2,
        Self::HalfBody,
        Self::Watch,
        Self::ForwardedWatch,
    ];

    async fn open(self, stage: &Stage, from: IpAddr) -> TcpStream {
        let mut stream = connect(from, stage.address).await;
        let (sent, is_answered) = match self {
            Self::Silence => (Vec::new(), false),
            Self::HalfHead => (b"GET /api/v1/pods HTTP/1.1\r\nHost".to_vec(), false),
            Self::HalfPreface => (b"PRI * HTTP/2.0\r\n".to_vec(), false),
            Self::Idle => (LIST.into(), true),
            Self::IdleHttp2 => {
                let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
                ([&preface[..], &settings(&[])].concat(), true)
            }
            Self::HalfBody => {
                let head = "POST /api/v1/nodes HTTP/1.1\r\nHost: a\r\n\
                    Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
                (head.into(), false)
            }
            Self::Watch => (WATCH.into(), true),
            Self::ForwardedWatch => (FORWARDED_WATCH.into(), true),
        };
        send(&mut stream, &sent).await;
        if is_answered {
            // A refusal, or an end without a byte, is an answer, too.
            read_until(&mut stream, |read| !read.is_empty()).await;
        }
        stream
    }
}

/// The gateway forwards requests for nodes.
fn limit(settings: &mut ServeSettings) {
    settings.cached.denied = vec!["nodes".parse().unwrap()];
    settings.admission.connections_max = 3 * LIMIT;
    settings.admission.watches_max = LIMIT;
    settings.forwards.requests_max = LIMIT;
    settings.forwards.watches_max = LIMIT;
}

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, number))
}

/// The status code of the response to these bytes, on a new connection of the newcomer.
async fn ask(stage: &Stage, request: &str) -> u16 {
    let mut stream = connect(NEWCOMER, stage.address).await;
    send(&mut stream, request.as_bytes()).await;
    let head = read_until(&mut stream, |read| read.contains(&b'\n')).await;
    code(&String::from_utf8_lossy(&head))
}

/// Each request is sent once: a newcomer is served at once, not sooner or later.
async fn check_newcomer(stage: &Stage, label: &str) {
    for (request, expected) in [
        (LIST, 200),
        (WATCH, 200),
        (FORWARDED, 200),
        (FORWARDED_WATCH, 200),
    ] {
        assert_eq!(ask(stage, request).await, expected, "{label}: {request}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_is_served_whatever_a_few_addresses_hold() {
    for seed in 0..4 {
        let stage = Stage::with(limit).await;
        let mut random = Random(seed);
        let mut held = Vec::new();
        for _ in 0..HOLDS {
            let from = address(2 + u8::try_from(random.below(ADDRESSES.into())).unwrap());
            let hold = random.one_of(&Hold::ALL);
            held.push(hold.open(&stage, from).await);
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
        let stage = Stage::with(limit).await;
        let mut held = Vec::new();
        for number in 0..HOLDS {
            let from = address(2 + u8::try_from(number).unwrap() % ADDRESSES);
            held.push(hold.open(&stage, from).await);
        }
        check_newcomer(&stage, &format!("{hold:?}")).await;
        drop(held);
        stage.shut_down().await;
    }
}

/// Its client needs to have no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_request_gives_way_to_a_newcomer() {
    let stage = Stage::with(|settings| settings.admission.connections_max = 4).await;
    let mut used = Vec::new();
    for number in 2..5 {
        used.push(Hold::Watch.open(&stage, address(number)).await);
    }
    let mut unused = Hold::HalfHead.open(&stage, address(5)).await;
    assert_eq!(ask(&stage, LIST).await, 200);
    assert_eq!(read_until(&mut unused, |_| false).await, b"");
    for stream in &mut used {
        let mut byte = [0];
        let read = stream.try_read(&mut byte);
        assert!(!matches!(read, Ok(0)), "{read:?}");
    }
    stage.shut_down().await;
}
