//! One swarm thread over HTTP/2: many members' streams on each of a few connections, by hyper.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::LocalSet;

use super::{Ended, Member, Next, PAUSE, ProgressShare, Wiring};
use crate::recorder::{Control, Recorder};
use crate::target::{CONNECT_WAIT, Target};

/// How often orders are looked at; every look walks over the members.
const LOOK: Duration = Duration::from_millis(20);

type Sender = SendRequest<Empty<Bytes>>;

/// A connection that several members share, made anew by whoever first finds it gone.
#[derive(Default)]
struct Shared {
    sender: tokio::sync::Mutex<Option<Sender>>,
}

struct Thread<M> {
    members: Vec<RefCell<M>>,
    recorder: RefCell<Recorder>,
    control: Arc<Control>,
    target: Target,
}

/// Runs until ordered to stop.
///
/// # Errors
/// If the runtime cannot be made.
pub fn run<M: Member>(
    members: Vec<M>,
    wiring: &Wiring,
    control: Arc<Control>,
    streams: usize,
) -> Result<(Vec<M>, Recorder)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let thread = Rc::new(Thread {
        members: members.into_iter().map(RefCell::new).collect(),
        recorder: RefCell::default(),
        control,
        target: wiring.target.clone(),
    });
    let tasks = LocalSet::new();
    for first in (0..thread.members.len()).step_by(streams.max(1)) {
        let shared = Rc::new(Shared::default());
        for number in first..(first + streams.max(1)).min(thread.members.len()) {
            // Owned by the LocalSet, ended by its drop.
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
    while !thread.control.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
        let progress = thread
            .members
            .iter()
            .map(|member| member.borrow().progress(&thread.control))
            .sum();
        share.report(progress, &thread.control);
    }
}

async fn drive<M: Member>(thread: Rc<Thread<M>>, shared: Rc<Shared>, number: usize) {
    let mut was_ready = false;
    loop {
        let next = thread.members[number].borrow_mut().next(&thread.control);
        match next {
            Next::Rest => tokio::time::sleep(LOOK).await,
            Next::Pause => tokio::time::sleep(PAUSE).await,
            Next::Send(path) => {
                let result = exchange(&thread, &shared, number, &path, &mut was_ready).await;
                let mut recorder = thread.recorder.borrow_mut();
                let mut member = thread.members[number].borrow_mut();
                match result {
                    Ok(status) => member.ended(Ended::Complete(status), &mut recorder),
                    Err(error) => {
                        let text = format!("{error:#}");
                        recorder.end("stream broken");
                        recorder.message(|| text.clone());
                        member.ended(Ended::Broken(&text), &mut recorder);
                    }
                }
            }
        }
    }
}

/// One request and its whole response.
async fn exchange<M: Member>(
    thread: &Thread<M>,
    shared: &Shared,
    number: usize,
    path: &str,
    was_ready: &mut bool,
) -> Result<u16> {
    let mut sender = sender(thread, shared).await?;
    let scheme = if thread.target.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let mut request = Request::get(format!("{scheme}://{}{path}", thread.target.authority))
        .header("accept", "application/json")
        .header("accept-encoding", thread.target.encoding);
    if let Some(token) = &thread.target.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Empty::new())?).await?;
    let status = response.status().as_u16();
    if status == 200 && !*was_ready {
        *was_ready = true;
        thread.control.ready.fetch_add(1, Ordering::Relaxed);
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        let mut recorder = thread.recorder.borrow_mut();
        recorder.tick(&thread.control);
        recorder.bytes += data.len() as u64;
        let events_before = recorder.events;
        thread.members[number]
            .borrow_mut()
            .body(status, &data, &mut recorder);
        thread
            .control
            .delivered
            .fetch_add(recorder.events - events_before, Ordering::Relaxed);
        thread
            .control
            .bytes
            .fetch_add(data.len() as u64, Ordering::Relaxed);
    }
    Ok(status)
}

async fn sender<M>(thread: &Thread<M>, shared: &Shared) -> Result<Sender> {
    // Members of one connection wait here for the one that makes it; they have nothing else to do.
    let mut slot = shared.sender.lock().await;
    if let Some(sender) = slot.as_ref().filter(|sender| !sender.is_closed()) {
        return Ok(sender.clone());
    }
    let making = async {
        let stream = thread.target.connect("h2").await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await?;
        tokio::task::spawn_local(async move { connection.await.ok() });
        Ok::<_, anyhow::Error>(sender)
    };
    match tokio::time::timeout(CONNECT_WAIT, making).await {
        Ok(made) => Ok(slot.insert(made?).clone()),
        Err(_) => bail!("no HTTP/2 connection within {CONNECT_WAIT:?}"),
    }
}
