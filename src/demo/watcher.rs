//! One watcher: a connection of its own, read with next to no work, and what it got. Ends with its task only.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::expected_events::StreamDigest;
use super::latency::Latencies;
use super::stream::{ChunkDecoder, Finders, StreamError, StreamLine};
use crate::resource::{EventKind, ResourceVersion};

/// Bytes taken from a socket at once; the buffer lives only while they are looked at.
const READ_LEN: usize = 16 << 10;
/// Reads of one watcher before others get their turn.
const READ_COUNT_MAX: usize = 8;
/// Longest head of an answer.
const HEAD_LEN_MAX: usize = 8 << 10;
/// Pause before a watch that ended is taken up again.
const PAUSE: Duration = Duration::from_millis(100);

/// What all watchers share.
#[derive(Debug)]
pub(super) struct Swarm {
    pub(super) gateway: SocketAddr,
    pub(super) finders: Finders,
    /// Latencies, in shards so that watchers on different threads rarely meet.
    pub(super) latencies: [Mutex<Latencies>; 8],
    /// Connections that are being made at once: fewer than any listener's queue holds.
    pub(super) connecting: Semaphore,
}

/// What one watcher got so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatcherProgress {
    pub(super) course: StreamDigest,
    pub(super) doubled: u64,
    pub(super) out_of_order: u64,
    /// Watches that ended and were taken up again.
    pub(super) resumed: u64,
    /// Whether its place was lost: it would have to list again.
    pub(super) lost_place: bool,
    pub(super) connected: bool,
    /// Where to go on.
    resume_from: ResourceVersion,
}

/// One watcher's share: read by the screen, written by its task.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) kind_index: usize,
    number: usize,
    path: String,
    got: Mutex<WatcherProgress>,
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
            got: Mutex::new(WatcherProgress {
                course: StreamDigest::after(from),
                doubled: 0,
                out_of_order: 0,
                resumed: 0,
                lost_place: false,
                connected: false,
                resume_from: from,
            }),
        }
    }

    /// What it got so far.
    pub(super) fn got(&self) -> WatcherProgress {
        *self.locked()
    }

    fn locked(&self) -> MutexGuard<'_, WatcherProgress> {
        // Plain numbers are whole whatever panicked.
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches, and takes its watch up again when it ends, until its place is lost.
    pub(super) async fn run(self: Arc<Self>, swarm: Arc<Swarm>) {
        loop {
            if let Err(StreamError::Refused) = self.watch(&swarm).await {
                self.locked().lost_place = true;
                return;
            }
            tokio::time::sleep(PAUSE).await;
            self.locked().resumed += 1;
        }
    }

    /// One watch, to its end. What the network or the gateway did wrong leads to another one.
    async fn watch(&self, swarm: &Swarm) -> Result<(), StreamError> {
        let Some((stream, first)) = self.open(swarm).await else {
            return Ok(());
        };
        self.locked().connected = true;
        let mut chunks = ChunkDecoder::default();
        self.take(&mut chunks, &first, swarm)?;
        while !chunks.is_over() {
            // An error shows again when the socket is read.
            stream.readable().await.unwrap_or_default();
            for _ in 0..READ_COUNT_MAX {
                let mut buffer = [0; READ_LEN];
                match stream.try_read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(len) => self.take(&mut chunks, &buffer[..len], swarm)?,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(_) => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Asks for the watch; gives back the connection and what came behind the answer's head.
    async fn open(&self, swarm: &Swarm) -> Option<(TcpStream, Vec<u8>)> {
        let _turn = swarm.connecting.acquire().await.ok()?;
        let mut stream = TcpStream::connect(swarm.gateway).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (path, from) = (&self.path, self.got().resume_from);
        let request = format!(
            "GET {path}?watch=1&allowWatchBookmarks=true&resourceVersion={from} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n\r\n",
            swarm.gateway
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        loop {
            if let Some(end) = memchr::memmem::find(&answer, b"\r\n\r\n") {
                let rest = answer.split_off(end + 4);
                return answer
                    .starts_with(b"HTTP/1.1 200 ")
                    .then_some((stream, rest));
            }
            let mut buffer = [0; 1024];
            stream.readable().await.ok()?;
            match stream.try_read(&mut buffer) {
                Ok(len) if len > 0 && answer.len() < HEAD_LEN_MAX => {
                    answer.extend_from_slice(&buffer[..len]);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Takes bytes of the stream and counts the events in them.
    fn take(
        &self,
        chunks: &mut ChunkDecoder,
        bytes: &[u8],
        swarm: &Swarm,
    ) -> Result<(), StreamError> {
        let now_ns = Timestamp::now().as_nanosecond();
        let mut latencies = swarm.latencies[self.number % swarm.latencies.len()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut got = self.locked();
        chunks.push(bytes, &mut |line| {
            match swarm.finders.line(line)? {
                StreamLine::Bookmark(version) => got.resume_from = version,
                StreamLine::Event { version, .. } if version == got.course.last => got.doubled += 1,
                // Older than an event, or than a bookmark that said there was none left.
                StreamLine::Event { version, .. } if version <= got.resume_from => {
                    got.out_of_order += 1
                }
                StreamLine::Event {
                    kind,
                    object,
                    version,
                } => {
                    got.course.add(kind, object, version);
                    got.resume_from = version;
                    // A deleted object tells of its last write, not of its deletion.
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

    fn got(lines: &[String]) -> WatcherProgress {
        let watcher = Watcher::new(0, 0, String::new(), ResourceVersion(1));
        let (swarm, mut chunks) = (swarm(), ChunkDecoder::default());
        for line in lines {
            let chunk = format!("{:x}\r\n{line}\r\n", line.len());
            watcher.take(&mut chunks, chunk.as_bytes(), &swarm).unwrap();
        }
        watcher.got()
    }

    #[track_caller]
    fn check(lines: &[String], doubled: u64, out_of_order: u64, sound: bool) {
        let wanted = got(&[event(2), event(3), event(4)]).course;
        let got = got(lines);
        assert_eq!((got.doubled, got.out_of_order), (doubled, out_of_order));
        assert_eq!(got.course == wanted, sound, "{lines:?}");
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
