//! Initial events that come from compressed blocks.

use std::io::Write as _;

use flate2::write::GzDecoder;
use tokio::sync::oneshot;

use super::*;
use crate::cache::{Chunk, DeflateBlock};
use crate::view::GzipWeight;
use crate::watch::initial_block::samples::block;

/// Every chunk is long enough.
static NARROW: FrameLimits = FrameLimits {
    len: 200,
    initial_len: 300,
    slices: 5,
    block_min: 1,
    cost: 1_000,
};

/// Every watch is compressed for.
const EACH: GzipWeight = GzipWeight {
    watches: 1,
    watches_min: 1,
};

/// The blocks that are being made; the test makes them.
#[derive(Debug, Default)]
struct HeldBlocks(Mutex<Vec<(Arc<Chunk>, oneshot::Sender<DeflateBlock>)>>);

impl InitialBlocks for HeldBlocks {
    fn make(&self, chunk: &Arc<Chunk>) -> MakingBlock {
        let (sender, made) = oneshot::channel();
        self.0.lock().unwrap().push((Arc::clone(chunk), sender));
        Box::pin(async { made.await.ok() })
    }
}

impl HeldBlocks {
    fn take(&self) -> (Arc<Chunk>, oneshot::Sender<DeflateBlock>) {
        self.0.lock().unwrap().pop().unwrap()
    }
}

struct GzipClient {
    client: Client,
    decoder: GzDecoder<Vec<u8>>,
    blocks: Arc<HeldBlocks>,
}

impl GzipClient {
    fn new(scene: &Scene, timeout: u64) -> Self {
        let blocks = Arc::new(HeldBlocks::default());
        let mut client = scene.client(&everything(), scene.initial(Marker::None), timeout);
        client.body = client
            .body
            .compressed(EACH, None, Arc::clone(&blocks) as _)
            .limited(&NARROW);
        Self {
            client,
            decoder: GzDecoder::new(Vec::new()),
            blocks,
        }
    }

    /// Reads all that is available now; true if the watch has ended.
    fn read(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.client.wakes));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self.client.body).poll_frame(&mut context) {
                Poll::Pending => return false,
                Poll::Ready(None) => return true,
                Poll::Ready(Some(Ok(frame))) => {
                    let mut buf = frame.into_data().unwrap();
                    let bytes = buf.copy_to_bytes(buf.remaining());
                    self.decoder.write_all(&bytes).unwrap();
                    self.decoder.flush().unwrap();
                }
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        told(self.decoder.get_ref())
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_closed_while_a_block_is_made_ends_after_the_initial_events() {
    let mut scene = Scene::new(WIDE);
    let version = scene.put("a/x", None);
    let mut client = GzipClient::new(&scene, HOUR);
    assert!(!client.read());
    scene.served.hub.close();
    assert!(!client.read(), "the initial events are cut off");
    let (chunk, sender) = client.blocks.take();
    let before = client.client.wakes();
    sender.send(block(&chunk)).unwrap();
    assert!(client.client.wakes() > before);
    assert!(client.read());
    assert_eq!(client.lines(), [format!("ADDED a/x {version} -")]);
    client.decoder.finish().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_chunk_whose_block_cannot_be_made_is_sent_as_it_is() {
    let mut scene = Scene::new(WIDE);
    let version = scene.put("a/x", None);
    let mut client = GzipClient::new(&scene, HOUR);
    assert!(!client.read());
    assert_eq!(client.lines(), [""; 0]);
    drop(client.blocks.take());
    assert!(!client.read());
    let late = scene.put("b/x", None);
    assert!(!client.read());
    let expected = [
        format!("ADDED a/x {version} -"),
        format!("ADDED b/x {late} -"),
    ];
    assert_eq!(client.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_due_while_a_block_is_made_waits_without_a_loop() {
    let mut scene = Scene::new(WIDE);
    scene.put("a/x", None);
    let mut client = GzipClient::new(&scene, HOUR);
    assert!(!client.read());
    // Bookmarks are due, and the end.
    advance(Duration::from_secs(120)).await;
    assert!(!client.read());
    advance(Duration::from_secs(HOUR)).await;
    assert!(client.read(), "the deadline has passed");
    client.decoder.finish().unwrap();
}
