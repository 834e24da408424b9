//! One swarm thread over HTTP/2: streams of many members on each of a few connections, by hyper.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use bytes::Bytes;

use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::client::conn::http2::Builder;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use tokio::task::LocalSet;

use super::pace::ReadPause;
use super::{Member, Next, ProgressShare, ResponseEnd, SwarmConfig, TOO_MANY};
use crate::http2::Sender;
use crate::recorder::{Control, Recorder, now_ns};
use crate::target::CONNECT_WAIT;
use crate::wire::response::retry_after;

/// How often orders are checked.
const LOOK: Duration = Duration::from_millis(20);
/// Every check visits all members: a hundred thousand of them ten times a second.
const LOOK_PER_MEMBER: Duration = Duration::from_micros(1);
/// Connections that are opened at the same time: servers give up on slow handshakes.
const CONNECTING_MAX: usize = 32;
/// Streams that the client has reset and that h2 still remembers.
const RESET_STREAMS_MAX: usize = 10_000;
/// Receive window of a connection, as Go's HTTP/2 client has it.
const CONNECTION_WINDOW_LEN: u32 = 1 << 30;

/// A connection that several members share; the first one that finds it gone opens it again.
struct SharedConnection {
    /// Where it comes from.
    source: Ipv4Addr,
    sender: tokio::sync::Mutex<Option<Sender>>,
}

/// What a member remembers of its requests.
#[derive(Default)]
struct History {
    /// Whether one of them got a response.
    was_ready: bool,
    /// Retry-After of the last response.
    retry_after: Option<Duration>,
}

struct Thread<M> {
    members: Vec<RefCell<M>>,
    /// Whether a response with status 200 is in progress, for each member.
    is_open: Vec<Cell<bool>>,
    recorder: RefCell<Recorder>,
    control: Arc<Control>,
    swarm_config: SwarmConfig,
    tls: Option<Arc<ClientConfig>>,
    connecting: tokio::sync::Semaphore,
}

/// Runs until ordered to stop. The first member has the number `first_number` in the swarm; so many `streams` share a connection.
pub fn run<M: Member>(
    members: Vec<M>,
    swarm_config: &SwarmConfig,
    control: Arc<Control>,
    first_number: usize,
    streams: usize,
) -> Result<(Vec<M>, Recorder)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = Rc::new(Thread {
        is_open: members.iter().map(|_| Cell::new(false)).collect(),
        members: members.into_iter().map(RefCell::new).collect(),
        recorder: RefCell::default(),
        control,
        swarm_config: swarm_config.clone(),
        tls: swarm_config.target.tls.as_ref().map(|tls| tls.config("h2")),
        connecting: tokio::sync::Semaphore::new(CONNECTING_MAX),
    });
    let streams = streams.max(1);
    let tasks = LocalSet::new();
    for first in (0..thread.members.len()).step_by(streams) {
        let shared = Rc::new(SharedConnection {
            source: swarm_config.source_of((first_number + first) / streams),
            sender: tokio::sync::Mutex::default(),
        });
        for number in first..(first + streams).min(thread.members.len()) {
            // The LocalSet owns the task and ends it.
            tasks.spawn_local(drive(thread.clone(), shared.clone(), number));
        }
    }
    runtime.block_on(tasks.run_until(obey(&thread)));
    drop(tasks);
    drop(runtime);
    let thread = Rc::try_unwrap(thread)
        .map_err(|_| anyhow!("invariant: all tasks are gone with their set"))?;
    Ok((
        thread
            .members
            .into_iter()
            .map(RefCell::into_inner)
            .collect(),
        thread.recorder.into_inner(),
    ))
}

async fn obey<M: Member>(thread: &Thread<M>) {
    let mut share = ProgressShare::default();
    let count = u32::try_from(thread.members.len()).unwrap_or(u32::MAX);
    let look = LOOK.max(LOOK_PER_MEMBER * count);
    while !thread.control.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(look).await;
        // Nothing else runs on this thread meanwhile, so the borrows cannot conflict.
        let members: Vec<_> = thread.members.iter().map(RefCell::borrow).collect();
        let is_open = thread.is_open.iter().map(Cell::get);
        let all = members.iter().map(|member| &**member).zip(is_open);
        share.report(all, &thread.control);
        thread.control.empty_looks.fetch_add(1, Ordering::Relaxed);
    }
}

async fn drive<M: Member>(thread: Rc<Thread<M>>, shared: Rc<SharedConnection>, number: usize) {
    let mut history = History::default();
    loop {
        let next = thread.members[number].borrow_mut().next(&thread.control);
        match next {
            Next::Rest => tokio::time::sleep(LOOK).await,
            Next::Wait(wait) => tokio::time::sleep(wait).await,
            Next::Done => return,
            Next::Pause => {
                let wait = thread.swarm_config.pause(history.retry_after.take());
                tokio::time::sleep(wait).await;
            }
            Next::Send(path) => {
                let result = exchange(&thread, &shared, number, &path, &mut history).await;
                thread.is_open[number].set(false);
                let mut recorder = thread.recorder.borrow_mut();
                let mut member = thread.members[number].borrow_mut();
                match result {
                    Ok(None) => member.response_ended(ResponseEnd::Left, &mut recorder),
                    Ok(Some(status)) => {
                        member.response_ended(ResponseEnd::Complete(status), &mut recorder)
                    }
                    Err(error) => {
                        let text = format!("{error:#}");
                        recorder.end("stream broken");
                        recorder.message(&text);
                        member.response_ended(ResponseEnd::Broken(&text), &mut recorder);
                    }
                }
            }
        }
    }
}

/// What the member asks next: the patch that it has to write, or the read of this path.
fn request<M: Member>(
    thread: &Thread<M>,
    number: usize,
    path: &str,
) -> Result<Request<Full<Bytes>>> {
    let target = thread.swarm_config.target.of_client(number);
    let mut member = thread.members[number].borrow_mut();
    let (patch, token) = (member.patch(), member.token());
    let (method, accept) = match patch {
        None => (Method::GET, thread.swarm_config.accept.header()),
        Some(_) => (Method::PATCH, "application/json"),
    };
    let mut request = target
        .request(method, &target.url(path))
        .header("user-agent", thread.swarm_config.user_agent)
        .header("accept", accept)
        .header("accept-encoding", target.encoding);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if patch.is_some() {
        request = request.header("content-type", "application/strategic-merge-patch+json");
    }
    Ok(request.body(Full::new(Bytes::from(patch.unwrap_or_default())))?)
}

/// One request and its whole response; returns its status, or none if the member left it.
async fn exchange<M: Member>(
    thread: &Thread<M>,
    shared: &SharedConnection,
    number: usize,
    path: &str,
    history: &mut History,
) -> Result<Option<u16>> {
    let started = Instant::now();
    history.retry_after = None;
    let mut sender = sender(thread, shared, number).await?;
    let request = request(thread, number, path)?;
    thread.control.requests.fetch_add(1, Ordering::Relaxed);
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    if status == 200 && !history.was_ready {
        history.was_ready = true;
        thread.control.ready.fetch_add(1, Ordering::Relaxed);
    }
    thread.is_open[number].set(status == 200);
    if status == 200 {
        thread.members[number].borrow_mut().response_started();
    }
    let header = response.headers().get("retry-after");
    history.retry_after = header.and_then(|value| retry_after(value.to_str().ok()?));
    if status == TOO_MANY {
        let says_when = history.retry_after.is_some();
        thread.recorder.borrow_mut().shed(says_when);
    }
    let mut body = response.into_body();
    let mut read_len = 0;
    loop {
        if history.was_ready {
            rest(thread, number, read_len, started).await;
        }
        if renews(thread, number, started) {
            thread.control.renewals.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let Some(frame) = body.frame().await else {
            // hyper takes a reset without an error for the end.
            ensure!(body.is_end_stream(), "reset by the server");
            return Ok(Some(status));
        };
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        let mut recorder = thread.recorder.borrow_mut();
        recorder.tick(&thread.control);
        let before = recorder.so_far();
        recorder.bytes += data.len() as u64;
        thread.members[number]
            .borrow_mut()
            .body(status, &data, &mut recorder);
        thread.control.add(&recorder.since(&before));
        drop(recorder);
        if thread.members[number]
            .borrow()
            .wants_to_leave(&thread.control)
        {
            return Ok(None);
        }
        read_len = data.len();
    }
}

/// Whether a slow member leaves a stream that started then.
fn renews<M: Member>(thread: &Thread<M>, number: usize, started: Instant) -> bool {
    let slow = thread.members[number].borrow().slowness();
    thread.control.stalled.load(Ordering::Relaxed)
        && slow.is_some_and(|slow| slow.renews(started.elapsed()))
}

async fn rest<M: Member>(
    thread: &Thread<M>,
    number: usize,
    read_len: usize,
    stream_started: Instant,
) {
    let Some(slow) = thread.members[number].borrow().slowness() else {
        return;
    };
    let is_slow = || thread.control.stalled.load(Ordering::Relaxed);
    let started = Instant::now();
    while is_slow() && !slow.renews(stream_started.elapsed()) {
        let wait = match slow.pace.rest(read_len, Duration::from_nanos(now_ns())) {
            ReadPause::None => return,
            ReadPause::For(time) => time.saturating_sub(started.elapsed()),
            ReadPause::UntilWoken => LOOK,
        };
        if wait.is_zero() {
            return;
        }
        // Checks now and then whether the slow time is over.
        tokio::time::sleep(wait.min(LOOK)).await;
    }
}

/// The connection, which the member with this number opens if there is none.
async fn sender<M: Member>(
    thread: &Thread<M>,
    shared: &SharedConnection,
    number: usize,
) -> Result<Sender> {
    // Other members of the connection wait here until it is open.
    let mut slot = shared.sender.lock().await;
    if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_closed()) {
        return Ok(sender.clone());
    }
    let _turn = thread.connecting.acquire().await?;
    let own_tls = thread.members[number].borrow().tls();
    let tls = own_tls.or_else(|| thread.tls.clone());
    let making = async {
        let target = &thread.swarm_config.target;
        let stream = target.connect_with(shared.source, tls).await?;
        let mut builder = Builder::new(TokioExecutor::new());
        // Members that leave still receive events in flight. By default h2 forgets a reset stream after ten others, and takes later frames
        // for a flood.
        builder
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .initial_stream_window_size(thread.swarm_config.stream_window)
            .initial_connection_window_size(CONNECTION_WINDOW_LEN);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(async move { connection.await.ok() });
        Ok::<_, anyhow::Error>(sender)
    };
    match tokio::time::timeout(CONNECT_WAIT, making).await {
        Ok(made) => Ok(slot.insert(made?).clone()),
        Err(_) => bail!("no HTTP/2 connection within {CONNECT_WAIT:?}"),
    }
}

#[cfg(test)]
mod tests {
    //! A stream that was reset has not ended in order, whatever the error code.

    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::swarm::Swarm;
    use crate::target::Target;

    const PREFACE_LEN: usize = 24;
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    /// Status 200 on the first stream, and a byte.
    const BEGINNING: &[u8] = b"\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x01\0\0\0\0\0\x01x";
    const END: &[u8] = b"\0\0\0\0\x01\0\0\0\x01";
    const RESET_WITHOUT_ERROR: &[u8] = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\0";

    /// Sends one request, and keeps how its response ended.
    #[derive(Debug, Default)]
    struct Once(Option<String>);

    impl Member for Once {
        fn next(&mut self, _: &Control) -> Next {
            match self.0 {
                None => Next::Send("/".to_owned()),
                Some(_) => Next::Done,
            }
        }

        fn body(&mut self, _: u16, _: &[u8], _: &mut Recorder) {}

        fn response_ended(&mut self, how: ResponseEnd<'_>, _: &mut Recorder) {
            self.0.get_or_insert(format!("{how:?}"));
        }

        fn progress(&self, _: &Control) -> usize {
            usize::from(self.0.is_some())
        }
    }

    /// Reads a frame; true if it has the headers of a request.
    fn is_head(stream: &mut TcpStream) -> bool {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let len = usize::from(u16::from_be_bytes([head[1], head[2]]));
        stream.read_exact(&mut vec![0; len]).unwrap();
        head[3] == 1
    }

    /// How a stream ended whose last frame is this one.
    async fn ended(last: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(SETTINGS).unwrap();
            stream.read_exact(&mut [0; PREFACE_LEN]).unwrap();
            while !is_head(&mut stream) {}
            stream.write_all(&[BEGINNING, last].concat()).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let target = Target::new(&format!("http://{address}"), None, None).unwrap();
        let swarm_config = SwarmConfig {
            streams_per_connection: Some(1),
            ..SwarmConfig::new(target)
        };
        let control = Arc::new(Control::default());
        let swarm = Swarm::start(vec![Once::default()], &swarm_config, control).unwrap();
        let wait = Duration::from_secs(60);
        swarm.play_round(1, wait).await.unwrap();
        let (members, _) = swarm.finish().unwrap();
        server.join().unwrap();
        members.into_iter().next().unwrap().0.unwrap()
    }

    #[tokio::test]
    async fn a_reset_without_an_error_is_no_end() {
        assert_eq!(ended(END).await, "Complete(200)");
        assert_eq!(
            ended(RESET_WITHOUT_ERROR).await,
            r#"Broken("reset by the server")"#
        );
    }
}
