//! Events as a client gets them: as they are, or compressed.

use std::sync::Arc;
use std::task::Waker;

use super::step::EventsStep;
use super::{BeforeHistory, CursorStep, WatchCursor};
use crate::cache::DeflateBlock;
use crate::protocol::BufList;
use crate::view::GzipWeight;
use crate::watch::compression::{GzipTrial, WatchCompression};
use crate::watch::initial_block::InitialBlocks;
use crate::watch::limits::GZIP_FRAMES;

impl WatchCursor {
    /// Sends events as gzip, compressed if that is worth it.
    pub(in crate::watch) fn compress(
        &mut self,
        weight: GzipWeight,
        trial: Option<GzipTrial>,
        blocks: Arc<dyn InitialBlocks>,
    ) {
        if let Some(BeforeHistory::First(first)) = &mut self.before_history {
            first.compress(blocks);
        }
        let compression = WatchCompression::new(&self.view, weight, trial);
        self.compression = Some(Box::new(compression));
        self.limits = &GZIP_FRAMES;
    }

    /// How the events are compressed, if they are.
    pub(crate) fn compression(&mut self) -> Option<&mut WatchCompression> {
        self.compression.as_deref_mut()
    }

    /// Whether a compressed block is waited for. Until it is there, nothing else can be sent.
    pub(crate) fn waits_for_block(&self) -> bool {
        matches!(&self.before_history, Some(BeforeHistory::First(first)) if first.waits())
    }

    /// If a compressed block is waited for, wakes `waker` when it is there; returns whether it is there already.
    pub(crate) fn arm_block(&mut self, waker: &Waker) -> bool {
        match &mut self.before_history {
            Some(BeforeHistory::First(first)) => first.arm(waker),
            Some(BeforeHistory::Future(_)) | None => false,
        }
    }

    /// The next frame, or what to wait for. Call it when the connection has taken the last frame.
    pub(crate) fn next(&mut self) -> CursorStep {
        let step = match self.next_events() {
            EventsStep::Step(step) => step,
            EventsStep::Block(block) => return CursorStep::Frame(self.shared_block(&block)),
        };
        let Some(compression) = &mut self.compression else {
            return step;
        };
        let sent = match step {
            CursorStep::Frame(events) => return CursorStep::Frame(self.encoded(events)),
            CursorStep::Nothing | CursorStep::Unfinished => compression.begin().map(BufList::from),
            CursorStep::Over => compression.end(),
        };
        sent.map_or(step, CursorStep::Frame)
    }

    /// Events for this client alone, as they are sent.
    pub(super) fn encoded(&mut self, events: BufList) -> BufList {
        let Some(compression) = &mut self.compression else {
            return events;
        };
        let len = events.len() as u64;
        let sent = compression.alone(events);
        self.recorder.compressed(len, sent.len() as u64);
        sent
    }

    /// A block that all clients get, as it is sent.
    fn shared_block(&mut self, block: &DeflateBlock) -> BufList {
        let compression = self.compression.as_mut();
        let sent = compression.map(|it| it.shared(block)).unwrap_or_default();
        self.recorder.compressed(block.len, sent.len() as u64);
        sent
    }
}
