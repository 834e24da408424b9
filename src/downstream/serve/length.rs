//! Measures a list before its head is written.

use crate::downstream::list::Page;
use crate::downstream::request::Refusal;
use crate::resource::ResourceKind;
use crate::view::Rendition;

/// How long the page's items are together, as far as its head must say so. Other tasks get their turn between the steps.
///
/// # Errors
/// An object cannot be written in this form: upstream is to answer. Later the list could only be broken off.
pub(super) async fn items_len(
    page: &Page,
    kind: &ResourceKind,
    rendition: Rendition,
) -> Result<usize, Refusal> {
    let mut measure = page.measure(kind, rendition);
    loop {
        match measure.step() {
            Ok(Some(len)) => return Ok(len),
            Ok(None) => tokio::task::yield_now().await,
            Err(_) => return Err(Refusal::Forward),
        }
    }
}
