//! One watcher: its own connection, which it reads with as little work as possible, and what it received. It reconnects until its task is
//! aborted or the gateway tells it to list again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::expected_events::StreamDigest;
use super::latency::Latencies;
use super::stream::{ChunkDecoder, Finders, StreamError, StreamLine};
use crate::resource::{EventKind, ResourceVersion};

/// Bytes per read. The buffer is on the stack, so that an idle watcher needs none.
const READ_LEN: usize = 16 << 10;
/// Number of reads before other watchers get their turn.
const READ_COUNT_MAX: usize = 8;
/// Longest accepted head of a response.
const HEAD_LEN_MAX: usize = 8 << 10;
/// Pause before a watch that ended is resumed.
const PAUSE: Duration = Duration::from_millis(100);

/// State that all watchers share.
#[derive(Debug)]
pub(super) struct Swarm {
    pub(super) gateway: SocketAddr,
    pub(super) finders: Finders,
    /// Latencies, in shards to avoid contention between watchers on different threads.
    pub(super) latencies: [Mutex<Latencies>; 8],
    /// Bounds the connections that are being established, so that they fit into the listener's queue.
    pub(super) connecting: Semaphore,
}

/// What one watcher has received.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatcherProgress {
    pub(super) digest: StreamDigest,
    pub(super) doubled: u64,
    pub(super) out_of_order: u64,
    /// Number of watches that ended and were resumed.
    pub(super) resumed: u64,
    /// Whether the watch ended with an error event, so that the watcher would have to list again.
    pub(super) must_relist: bool,
    pub(super) connected: bool,
    /// The version from which the next watch continues.
    resume_from: ResourceVersion,
}

/// One watcher. Its task writes the progress; the demo reads it.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) kind_index: usize,
    number: usize,
    path: String,
    progress: Mutex<WatcherProgress>,
}

impl Watcher {
    pub(super) fn new(
        number: usize,
        kind_index: usize,
        path: String,
        from: ResourceVersion,
    ) -> Self {
        Self {
            kind_index,
            number,
            path,
            progress: Mutex::new(WatcherProgress {
                digest: StreamDigest::after(from),
                doubled: 0,
                out_of_order: 0,
                resumed: 0,
                must_relist: false,
                connected: false,
                resume_from: from,
            }),
        }
    }

    /// A copy of the progress.
    pub(super) fn progress(&self) -> WatcherProgress {
        *self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, WatcherProgress> {
        // Plain numbers are consistent even after a panic.
        self.progress.lock()
    }

    /// Watches, and resumes the watch when it ends, until the gateway refuses that with an error event.
    pub(super) async fn run(self: Arc<Self>, swarm: Arc<Swarm>) {
        loop {
            if let Err(StreamError::Refused) = self.watch(&swarm).await {
                self.locked().must_relist = true;
                return;
            }
            tokio::time::sleep(PAUSE).await;
            self.locked().resumed += 1;
        }
    }

    /// Runs one watch to its end. After errors of the connection the watch is resumed, so they are not reported.
    async fn watch(&self, swarm: &Swarm) -> Result<(), StreamError> {
        let Some((stream, first)) = self.open(swarm).await else {
            return Ok(());
        };
        self.locked().connected = true;
        let mut chunks = ChunkDecoder::default();
        self.receive(&mut chunks, &first, swarm)?;
        while !chunks.is_over() {
            // An error occurs again when the socket is read.
            stream.readable().await.unwrap_or_default();
            for _ in 0..READ_COUNT_MAX {
                let mut buffer = [0; READ_LEN];
                match stream.try_read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(len) => self.receive(&mut chunks, &buffer[..len], swarm)?,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(_) => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Sends the request; returns the connection and the bytes that arrived after the response's head.
    async fn open(&self, swarm: &Swarm) -> Option<(TcpStream, Vec<u8>)> {
        let _permit = swarm.connecting.acquire().await.ok()?;
        let mut stream = TcpStream::connect(swarm.gateway).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (path, from) = (&self.path, self.progress().resume_from);
        let request = format!(
            "GET {path}?watch=1&allowWatchBookmarks=true&resourceVersion={from} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n\r\n",
            swarm.gateway
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = Vec::new();
        loop {
            if let Some(end) = memchr::memmem::find(&response, b"\r\n\r\n") {
                let rest = response.split_off(end + 4);
                return response
                    .starts_with(b"HTTP/1.1 200 ")
                    .then_some((stream, rest));
            }
            let mut buffer = [0; 1024];
            stream.readable().await.ok()?;
            match stream.try_read(&mut buffer) {
                Ok(len) if len > 0 && response.len() < HEAD_LEN_MAX => {
                    response.extend_from_slice(&buffer[..len]);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Processes bytes of the stream, and counts the events in them.
    fn receive(
        &self,
        chunks: &mut ChunkDecoder,
        bytes: &[u8],
        swarm: &Swarm,
    ) -> Result<(), StreamError> {
        let now_ns = Timestamp::now().as_nanosecond();
        let mut latencies = swarm.latencies[self.number % swarm.latencies.len()].lock();
        let mut progress = self.locked();
        chunks.push(bytes, &mut |line| {
            match swarm.finders.line(line)? {
                StreamLine::Bookmark(version) => progress.resume_from = version,
                StreamLine::Event { version, .. } if version == progress.digest.last => {
                    progress.doubled += 1
                }
                // Not newer than the last event or bookmark.
                StreamLine::Event { version, .. } if version <= progress.resume_from => {
                    progress.out_of_order += 1
                }
                StreamLine::Event {
                    kind,
                    object,
                    version,
                } => {
                    progress.digest.add(kind, object, version);
                    progress.resume_from = version;
                    // The annotation of a deleted object has the time of its last write, not of its deletion.
                    let written_at = swarm.finders.written_at(object);
                    if let Some(written_at) = written_at.filter(|_| kind != EventKind::Deleted) {
                        let micros = (now_ns - written_at).max(0) / 1000;
                        latencies.add(u64::try_from(micros).unwrap_or(u64::MAX));
                    }
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swarm() -> Swarm {
        Swarm {
            gateway: SocketAddr::from(([127, 0, 0, 1], 1)),
            finders: Finders::new(),
            latencies: std::array::from_fn(|_| Mutex::default()),
            connecting: Semaphore::new(1),
        }
    }

    fn event(version: u64) -> String {
        let head = EventKind::Modified.line_head();
        format!("{head}{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n")
    }

    fn bookmark(version: u64) -> String {
        let object = format!("{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}");
        format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n")
    }

    fn progress_after(lines: &[String]) -> WatcherProgress {
        let watcher = Watcher::new(0, 0, String::new(), ResourceVersion(1));
        let (swarm, mut chunks) = (swarm(), ChunkDecoder::default());
        for line in lines {
            let chunk = format!("{:x}\r\n{line}\r\n", line.len());
            watcher
                .receive(&mut chunks, chunk.as_bytes(), &swarm)
                .unwrap();
        }
        watcher.progress()
    }

    #[track_caller]
    fn check(lines: &[String], doubled: u64, out_of_order: u64, sound: bool) {
        let expected = progress_after(&[event(2), event(3), event(4)]).digest;
        let progress = progress_after(lines);
        assert_eq!(
            (progress.doubled, progress.out_of_order),
            (doubled, out_of_order)
        );
        assert_eq!(progress.digest == expected, sound, "{lines:?}");
    }

    #[test]
    fn what_is_lost_doubled_or_out_of_order_is_seen() {
        check(&[event(2), event(3), bookmark(3), event(4)], 0, 0, true);
        check(&[event(2), event(4)], 0, 0, false);
        check(&[event(2), event(2), event(3), event(4)], 1, 0, true);
        check(&[event(3), event(2), event(4)], 0, 1, false);
        check(&[event(2), bookmark(3), event(3), event(4)], 0, 1, false);
    }
}
