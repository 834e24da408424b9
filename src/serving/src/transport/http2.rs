//! What passes over an HTTP/2 connection beside h2: frames that the delivery workers write between its own (decision 65).
//!
//! `outbound` follows what h2 writes, and `inbound` what the client sends; `adoptions` has the streams that are the workers', and decides how
//! much of the client's windows they may use. All of it is state of the [`WriteCoalescer`](super::WriteCoalescer).

mod adoptions;
mod inbound;
mod outbound;

pub(super) use adoptions::Adoptions;
pub(crate) use adoptions::BodyStep;
pub(super) use inbound::InboundFrames;
pub(super) use outbound::{OutboundFrames, WriteSpan};
