//! Decodes list pages, large ones outside the driver's task. Decides nothing and fills nothing.

use bytes::Bytes;

use super::fault::{AttemptFailure, FrameRejection};
use super::read_spec::ReadSpec;
use crate::blocking::spawn_blocking;
use crate::decode::{ItemFraming, ListPage, scan_list, scan_protobuf_list};
use crate::resource::{Encoding, FieldTable, Object};

/// Responses of at least this length, in bytes, are decoded on another thread: decoding takes some hundred microseconds,
/// and handing the bytes over and back about ten.
pub(super) const BLOCKING_LEN_MIN: usize = 256 << 10;

/// A list page whose envelope has been read.
#[derive(Debug)]
pub(super) struct ScannedPage {
    pub(super) page: ListPage,
    pub(super) body: Bytes,
    encoding: Encoding,
    fields: FieldTable,
}

impl ScannedPage {
    pub(super) fn new(spec: &ReadSpec, body: Bytes) -> Result<Self, AttemptFailure> {
        let page = match spec.encoding {
            Encoding::Json => scan_list(&body),
            Encoding::Protobuf => scan_protobuf_list(&body),
        };
        let page = page.map_err(|error| AttemptFailure::unparsable(&error))?;
        if page.kind == "Table" {
            let cause = "a Table came instead of a list";
            return Err(AttemptFailure::rejected(
                FrameRejection::WrongContentType,
                cause,
            ));
        }
        Ok(Self {
            page,
            body,
            encoding: spec.encoding,
            fields: spec.fields,
        })
    }

    /// All items, in list order.
    pub(super) fn objects(&self) -> Result<Vec<Object>, AttemptFailure> {
        let framing = ItemFraming::new(&self.page, self.encoding);
        let objects: Result<_, _> = self
            .page
            .items
            .iter()
            .map(|span| framing.object(span.of(&self.body), self.fields))
            .collect();
        objects.map_err(|error| AttemptFailure::unparsable(&error))
    }
}

/// Runs `work` on a thread where it blocks no other task. It runs to its end even if the caller stops waiting.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is being shut down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
