//! Floods over HTTP/2: clients that keep to the protocol, or nearly, and cause work without end.

use crate::hostile::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR,
    GOAWAY, HEADERS, INDEXED, INITIAL_WINDOW_SIZE, NO_ERROR, PING, PRIORITY, RawConnection,
    SETTINGS, frame, get, head, header, indexed_header, reset, settings, window_update,
};
use crate::hostile::stage::Stage;

const PODS: &str = "/api/v1/namespaces/default/pods";
/// A forwarded path, whose response takes a round trip to upstream.
const NOBODY: &str = "/api/v1/namespaces/default/pods/nobody";
const FAILED: &str = "kube_fanout_connections_failed_total";
const FLOOD: &[&str] = &["reason=\"flood\""];
const PROTOCOL: &[&str] = &["reason=\"protocol\""];
const STREAM: u32 = 1;
const FRAME_LEN_MAX: usize = 16 << 10;

/// Requests between two pings. Only one, because hyper may answer pings before it processes the streams, and it has a limit of its own
/// for resets of streams that have not been accepted yet.
const BURST: u32 = 1;
/// The number of aborted requests after which the gateway sends GOAWAY to a connection; after twice as many it closes the connection.
const ABORTS_MAX: f64 = 500.0;
/// More bursts than it takes until the connection is closed.
const BURSTS_MAX: u32 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gives_up_request_after_request_is_sent_away_and_then_cut() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = RawConnection::connect(stage.address, &[]).await;
    let mut received_goaway = false;
    let mut is_closed = false;
    for burst in 0..BURSTS_MAX {
        let mut sent = Vec::new();
        for number in 0..BURST {
            let stream = 2 * (burst * BURST + number) + 1;
            sent.extend_from_slice(&get(stream, NOBODY));
            sent.extend_from_slice(&reset(stream));
        }
        let payload = u64::from(burst).to_be_bytes();
        sent.extend_from_slice(&frame(PING, 0, 0, &payload));
        raw.send(&sent).await;
        // Waits for the acknowledgement of this ping. The ping that the gateway sends with its GOAWAY is not answered.
        loop {
            match raw.next().await {
                Some(frame) if frame.kind == GOAWAY => {
                    assert_eq!(frame.u32_at(4), NO_ERROR);
                    received_goaway = true;
                }
                Some(frame) if frame.kind == PING && frame.payload == payload => break,
                Some(_) => {}
                None => is_closed = true,
            }
            if is_closed {
                break;
            }
        }
        if is_closed {
            break;
        }
    }
    assert!(
        received_goaway && is_closed,
        "GOAWAY received: {received_goaway}, connection closed: {is_closed}"
    );
    let aborts = "kube_fanout_request_aborts_total";
    // On a busy machine the time after GOAWAY ends before the client has given up twice as many.
    stage.metric_reaches(aborts, &[], ABORTS_MAX).await;
    stage.metric_reaches(FAILED, FLOOD, 1.0).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_within_a_frame_or_a_stream_end_their_connection() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    // Without END_HEADERS: continuations must follow.
    let unfinished = frame(HEADERS, END_STREAM, STREAM, &head("GET", PODS));
    let small = frame(CONTINUATION, 0, STREAM, &header("a", "b")).repeat(10_000);
    let nothing = frame(CONTINUATION, 0, STREAM, b"").repeat(10_000);
    // One entry of the dynamic table, referred to by one byte each time: 60 MB of headers in 20 KB.
    let bomb = [
        head("GET", PODS),
        indexed_header("x", &"a".repeat(3_000)),
        vec![INDEXED; FRAME_LEN_MAX - 4_000],
    ]
    .concat();
    let bomb = [
        frame(HEADERS, END_STREAM, STREAM, &bomb),
        frame(CONTINUATION, END_HEADERS, STREAM, &[INDEXED; 4_000]),
    ]
    .concat();
    let many = (0..64).map(|_| header("x-large", &"a".repeat(FRAME_LEN_MAX - 100)));
    let many = many.map(|block| frame(CONTINUATION, 0, STREAM, &block));
    let many = [unfinished.clone(), many.collect::<Vec<_>>().concat()].concat();
    let create = frame(HEADERS, END_HEADERS, STREAM, &head("POST", PODS));
    let empty = frame(DATA, 0, STREAM, b"").repeat(10_000);
    let floods = [
        ("small continuations", [unfinished.clone(), small].concat()),
        ("empty continuations", [unfinished, nothing].concat()),
        ("a compressed head that expands", bomb),
        ("a head of a megabyte", many),
        ("a body of empty frames", [create, empty].concat()),
    ];
    for (number, (name, flood)) in (1_u32..).zip(floods) {
        let mut raw = RawConnection::connect(stage.address, &[]).await;
        raw.send(&flood).await;
        let code = raw.goaway().await;
        // If the gateway closes the connection while the client still sends, its GOAWAY may be lost.
        assert!(
            matches!(code, None | Some(ENHANCE_YOUR_CALM)),
            "{name}: {code:?}"
        );
        stage.metric_reaches(FAILED, FLOOD, number.into()).await;
    }
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_rules_of_flow_and_of_compression_are_counted() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let window_max = (1 << 31) - 1;
    let too_large = [head("GET", PODS), vec![0x3f, 0xe1, 0xff, 0xff, 0x7f]].concat();
    let unknown = [head("GET", PODS), vec![0xff, 0xff, 0x7f]].concat();
    let broken = [
        (
            "a connection window that overflows",
            window_update(0, window_max),
        ),
        ("a window update of 0", window_update(0, 0)),
        (
            "a table size update after a header",
            frame(HEADERS, 5, STREAM, &too_large),
        ),
        (
            "a header index that does not exist",
            frame(HEADERS, 5, STREAM, &unknown),
        ),
        ("an invalid initial window size", settings(&[(4, u32::MAX)])),
        ("an invalid maximum frame size", settings(&[(5, 1)])),
    ];
    for (number, (name, sent)) in (1_u32..).zip(broken) {
        let mut raw = RawConnection::connect(stage.address, &[]).await;
        raw.send(&sent).await;
        let code = raw.goaway().await;
        assert!(
            code.is_some_and(|code| code != NO_ERROR),
            "{name}: {code:?}"
        );
        stage.metric_reaches(FAILED, PROTOCOL, number.into()).await;
    }
    // A flow control error of one stream ends that stream only.
    let mut raw = RawConnection::connect(stage.address, &[]).await;
    let sent = [
        get(STREAM, "/api/v1/pods?watch=1"),
        window_update(STREAM, window_max),
    ]
    .concat();
    raw.send(&sent).await;
    let ended = raw
        .until(|frame| frame.is(crate::hostile::frames::RESET, STREAM))
        .await;
    assert_eq!(ended.last().unwrap().u32_at(0), FLOW_CONTROL_ERROR);
    raw.sync().await;
    stage.check_and_shut_down(witness).await;
}

/// Frames without content are a flood, whatever their type, if there are more than a client needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_frames_without_end_are_sent_away_and_then_cut() {
    const RESET: u8 = 3;
    const UNKNOWN: u8 = 0x42;
    /// More chunks than it takes until the connection is closed.
    const CHUNKS_MAX: usize = 1_000;
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let floods = [
        ("ping", frame(PING, 0, 0, b"the ping")),
        (
            "acknowledgement of no ping",
            frame(PING, ACK, 0, b"the ping"),
        ),
        ("settings", settings(&[])),
        ("window", window_update(0, 1)),
        ("window of a stream", window_update(STREAM, 1)),
        ("priority", frame(PRIORITY, 0, 1_001, &[0, 0, 0, 0, 1])),
        ("unknown", frame(UNKNOWN, 0, 0, b"")),
    ];
    // RST_STREAM is not among them: it has a limit of its own.
    assert_eq!(reset(STREAM)[3], RESET);
    for (number, (name, frame)) in (1_u32..).zip(floods) {
        let mut raw = RawConnection::connect(stage.address, &[]).await;
        raw.send(&get(STREAM, "/api/v1/pods?watch=1")).await;
        let (mut reader, mut writer) = raw.split();
        let writing = tokio::spawn(async move {
            let chunk = frame.repeat(100);
            for _ in 0..CHUNKS_MAX {
                if tokio::io::AsyncWriteExt::write_all(&mut writer, &chunk)
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        while let Some(frame) = reader.next().await {
            if frame.kind == GOAWAY {
                assert_eq!(frame.u32_at(4), NO_ERROR, "{name}");
            }
        }
        writing.await.unwrap();
        stage.metric_reaches(FAILED, FLOOD, number.into()).await;
    }
    stage.check_and_shut_down(witness).await;
}

/// The HTTP/2 library keeps the trailers of a request until its response was read: here a megabyte of memory for each of many streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_without_end_are_sent_away_and_then_cut() {
    const STREAM_COUNT: u32 = 100;
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = RawConnection::connect(stage.address, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let trailers = [indexed_header("x", "y"), vec![INDEXED; 3_900]].concat();
    for number in 0..STREAM_COUNT {
        let stream = 2 * number + 1;
        let request = frame(HEADERS, END_HEADERS, stream, &head("POST", PODS));
        let trailers = frame(HEADERS, END_STREAM | END_HEADERS, stream, &trailers);
        raw.send(&[request, trailers].concat()).await;
    }
    let code = raw.goaway().await;
    assert!(matches!(code, None | Some(NO_ERROR)), "{code:?}");
    stage.metric_reaches(FAILED, FLOOD, 1.0).await;
    stage.check_and_shut_down(witness).await;
}

/// Within the limits, each PING and each SETTINGS is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_settings_and_the_like_are_answered_one_by_one() {
    /// The number of frames of each of four kinds: together within the burst of control frames that a connection may send.
    const COUNT: usize = 200;
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let raw = RawConnection::connect(stage.address, &[]).await;
    let (mut reader, mut writer) = raw.split();
    let writing = tokio::spawn(async move {
        let ping = frame(PING, 0, 0, b"the ping");
        let idle = frame(PRIORITY, 0, 1_001, &[0, 0, 0, 0, 1]);
        let group = [settings(&[]), ping, window_update(0, 1), idle].concat();
        for _ in 0..COUNT / 10 {
            tokio::io::AsyncWriteExt::write_all(&mut writer, &group.repeat(10))
                .await
                .unwrap();
        }
        writer
    });
    let (mut pings, mut acknowledged) = (0, 0);
    while pings < COUNT || acknowledged <= COUNT {
        let frame = reader.next().await.expect("the connection was closed");
        pings += usize::from(frame.kind == PING && frame.flags == ACK);
        acknowledged += usize::from(frame.kind == SETTINGS && frame.flags == ACK);
    }
    assert_eq!((pings, acknowledged), (COUNT, COUNT + 1));
    let mut raw = reader.reunite(writing.await.unwrap());
    raw.send(&get(STREAM, PODS)).await;
    raw.until(|frame| frame.stream == STREAM && frame.ends_stream())
        .await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_too_large_is_refused_and_its_connection_lives() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = RawConnection::connect(stage.address, &[]).await;
    let token = header(
        "authorization",
        &format!("Bearer {}", "a".repeat(FRAME_LEN_MAX - 200)),
    );
    // Heads in frames of 16 KB: eight are within the limit, ten beyond it.
    for (stream, count, is_refused) in [(1, 1, false), (3, 7, false), (5, 9, true)] {
        let first = frame(HEADERS, END_STREAM, stream, &head("GET", PODS));
        let more = frame(CONTINUATION, 0, stream, &token).repeat(count);
        let last = frame(CONTINUATION, END_HEADERS, stream, b"");
        raw.send(&[first, more, last].concat()).await;
        let frames = raw
            .until(|frame| frame.stream == stream && frame.ends_stream())
            .await;
        let response = frames
            .iter()
            .find(|frame| frame.is(HEADERS, stream))
            .unwrap();
        // Status 200 is an entry of the static table (0x88); 431 is not.
        assert_eq!(
            response.payload[0] != 0x88,
            is_refused,
            "{count}: {response:?}"
        );
    }
    raw.sync().await;
    stage.check_and_shut_down(witness).await;
}

/// Heads and bodies that arrive one byte at a time, on many connections: they are served, and other clients do not wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_are_served_at_their_pace() {
    const SLOW_COUNT: usize = 30;
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let block = head("GET", PODS);
    let (first, rest) = block.split_at(1);
    let mut whole = frame(HEADERS, END_STREAM, STREAM, first);
    for byte in &rest[..4] {
        whole.extend_from_slice(&frame(CONTINUATION, 0, STREAM, &[*byte]));
    }
    whole.extend_from_slice(&frame(CONTINUATION, END_HEADERS, STREAM, &rest[4..]));
    let mut slow = Vec::new();
    for _ in 0..SLOW_COUNT {
        slow.push(RawConnection::connect(stage.address, &[]).await);
    }
    for (number, byte) in whole.iter().enumerate() {
        for raw in &mut slow {
            raw.send(&[*byte]).await;
        }
        if number % 16 == 0 {
            assert_eq!(stage.get(PODS).await.status(), 200);
        }
    }
    for raw in &mut slow {
        raw.until(|frame| frame.stream == STREAM && frame.ends_stream())
            .await;
    }
    // Bodies that never end hold permits of forwarded requests, and leave permits for other clients.
    for raw in &mut slow {
        let create = frame(HEADERS, END_HEADERS, 3, &head("POST", PODS));
        raw.send(&[create, frame(DATA, 0, 3, b"{")].concat()).await;
        raw.sync().await;
    }
    assert_eq!(stage.get(NOBODY).await.status(), 404);
    drop(slow);
    stage.check_and_shut_down(witness).await;
}
