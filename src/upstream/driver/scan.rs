//! Bytes of an answer to what they say, where they are many beside the driver's task. Decides nothing and fills nothing.

use bytes::Bytes;

use super::ReadSpec;
use super::fault::{AttemptFailure, FrameRejection};
use crate::decode::{ItemFraming, ListPage, scan_list, scan_protobuf_list};
use crate::resource::{Encoding, FieldTable, Object};

/// So many bytes are worth another thread: to scan them takes some hundred microseconds, to hand them over and back about ten.
pub(super) const APART_LEN_MIN: usize = 256 << 10;

/// A list page of which the envelope is known.
#[derive(Debug)]
pub(super) struct ScannedPage {
    pub(super) page: ListPage,
    pub(super) body: Bytes,
    encoding: Encoding,
    fields: FieldTable,
}

impl ScannedPage {
    pub(super) fn new(reading: &ReadSpec, body: Bytes) -> Result<Self, AttemptFailure> {
        let page = match reading.encoding {
            Encoding::Json => scan_list(&body),
            Encoding::Protobuf => scan_protobuf_list(&body),
        };
        let page = page.map_err(|error| AttemptFailure::unparsable(&error))?;
        if page.kind == "Table" {
            let cause = "a Table came where a list was asked for";
            return Err(AttemptFailure::rejected(
                FrameRejection::WrongContentType,
                cause,
            ));
        }
        Ok(Self {
            page,
            body,
            encoding: reading.encoding,
            fields: reading.fields,
        })
    }

    /// All items, in list order.
    pub(super) fn objects(&self) -> Result<Vec<Object>, AttemptFailure> {
        let form = ItemFraming::new(&self.page, self.encoding);
        let object =
            |span: &crate::resource::ByteSpan| form.object(span.of(&self.body), self.fields);
        let objects: Result<_, _> = self.page.items.iter().map(object).collect();
        objects.map_err(|error| AttemptFailure::unparsable(&error))
    }
}

/// Does `work` on a thread where it holds up nobody. It ends by itself, also when nobody waits for it any more.
pub(super) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is being shut down, and with it whoever waits here.
            Err(_) => std::future::pending().await,
        },
    }
}
