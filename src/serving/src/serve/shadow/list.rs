//! Compares a list with memory's at the same version.

use std::io::Read as _;

use bytes::BufMut as _;
use flate2::read::MultiGzDecoder;

use super::super::service::ServiceResponse;
use super::memory::{BROKEN, CompareStop, ShadowRead, TOO_MUCH, UNREADABLE, next_bytes};
use super::{ForwardedHead, encoding};
use crate::metrics::ShadowOutcome;
use crate::resource::Encoding;
use crate::shadow::{HeldBytes, ShadowList, TeeItem, TeeReader};

/// Length of an uncompressed list. Lists are uncompressed one at a time.
const LEN_MAX: u64 = 256 << 20;

/// A whole list, as it was sent.
struct ListBytes {
    bytes: Vec<u8>,
    is_gzip: bool,
    held: Option<HeldBytes>,
}

/// A list as it is compared. Its bytes count until the comparison is over: what it keeps of them is less.
struct ReadList {
    list: ShadowList,
    _held: Option<HeldBytes>,
}

impl ShadowRead {
    /// Compares a list.
    pub(super) async fn compare_list(
        &self,
        head: &ForwardedHead,
        items: TeeReader,
    ) -> Result<(), CompareStop> {
        if head.code != 200 {
            return self.compare_status(head.code).await;
        }
        let encoding_sent = head.encoding.ok_or(UNREADABLE)?;
        let upstream = received(items, head.is_gzip).await?;
        let upstream = match self.read_list(encoding_sent, upstream).await {
            // Perhaps memory cannot read this resource, either.
            Err(CompareStop::Differs(outcome)) => {
                self.answer(None).await?;
                return Err(CompareStop::Differs(outcome));
            }
            read => read?,
        };
        let response = self.answer(Some(upstream.list.version)).await?;
        if encoding(response.headers()) != Some(encoding_sent) {
            return Err(CompareStop::Differs(ShadowOutcome::Content));
        }
        let memory = self.sent_from_memory(response).await?;
        let memory = self.read_list(encoding_sent, memory).await?;
        if memory.list.version != upstream.list.version {
            return Err(CompareStop::NotComparable("memory read another version"));
        }
        self.compare_states(upstream.list.into(), memory.list.into())
            .await
    }

    async fn read_list(
        &self,
        encoding: Encoding,
        list: ListBytes,
    ) -> Result<ReadList, CompareStop> {
        let hasher = self.shadow.hasher().clone();
        self.aside(move || {
            let bytes = uncompressed(list.bytes, list.is_gzip)?;
            let read = ShadowList::read(encoding, &bytes, &hasher);
            Ok(ReadList {
                list: read.map_err(|_| CompareStop::Differs(ShadowOutcome::Content))?,
                _held: list.held,
            })
        })
        .await?
    }

    async fn sent_from_memory(&self, response: ServiceResponse) -> Result<ListBytes, CompareStop> {
        let mut body = response.into_body();
        let (mut bytes, mut held) = (Vec::new(), None);
        while let Some(part) = next_bytes(&mut body).await {
            let part = part.map_err(|_| BROKEN)?;
            let more = self.shadow.budget().hold(part.len());
            hold(&mut held, more.ok_or(TOO_MUCH)?);
            bytes.put(part);
        }
        Ok(ListBytes {
            bytes,
            is_gzip: false,
            held,
        })
    }
}

/// The whole forwarded list.
async fn received(mut items: TeeReader, is_gzip: bool) -> Result<ListBytes, CompareStop> {
    let (mut bytes, mut held) = (Vec::new(), None);
    loop {
        match items.recv().await {
            Some(TeeItem::Chunk(chunk, more)) => {
                hold(&mut held, more);
                bytes.extend_from_slice(&chunk);
            }
            Some(TeeItem::Idle) => {}
            Some(TeeItem::End) => {
                return Ok(ListBytes {
                    bytes,
                    is_gzip,
                    held,
                });
            }
            Some(TeeItem::Broken) => return Err(BROKEN),
            None => return Err(TOO_MUCH),
        }
    }
}

fn hold(held: &mut Option<HeldBytes>, more: HeldBytes) {
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
}

fn uncompressed(sent: Vec<u8>, is_gzip: bool) -> Result<Vec<u8>, CompareStop> {
    if !is_gzip {
        return Ok(sent);
    }
    let mut bytes = Vec::new();
    let read = MultiGzDecoder::new(&*sent)
        .take(LEN_MAX)
        .read_to_end(&mut bytes);
    match read {
        Ok(len) if (len as u64) < LEN_MAX => Ok(bytes),
        Ok(_) => Err(TOO_MUCH),
        Err(_) => Err(CompareStop::Differs(ShadowOutcome::Content)),
    }
}
