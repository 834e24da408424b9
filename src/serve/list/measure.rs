//! How long a page's items are together, which a list in protobuf says before the first of them. Found out in steps, so that
//! other requests get their turn between them, and kept with the chunks of the snapshot. Pure.

use std::task::Poll;

use super::step::Budget;
use super::{ItemFormat, PageItems, SnapshotPage};
use crate::cache::Chunk;
use crate::resource::{Encoding, Object, ResourceKind};
use crate::view::{ObjectFormat, ProjectionError};

/// A page that is being measured.
#[derive(Debug)]
pub struct PageMeasurement {
    page: SnapshotPage,
    form: ItemFormat,
    /// Of the items so far, their tags and lengths included.
    len: usize,
}

impl SnapshotPage {
    /// Begins to measure the page's items in this form.
    #[must_use]
    pub fn measure(&self, kind: &ResourceKind, rendition: ObjectFormat) -> PageMeasurement {
        PageMeasurement {
            page: self.clone(),
            form: ItemFormat::new(kind, rendition),
            len: 0,
        }
    }
}

impl PageMeasurement {
    /// Goes on a little. The length of all items when it is known; 0 in JSON, which does not need it.
    ///
    /// # Errors
    /// One of them cannot be written in this form.
    pub fn step(&mut self) -> Poll<Result<usize, ProjectionError>> {
        if self.form.encoding() == Encoding::Json {
            return Poll::Ready(Ok(0));
        }
        let mut budget = Budget::default();
        while !budget.is_spent() {
            match self.add_next(&mut budget) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Ok(self.len)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    /// Adds what is next, a chunk or one object; false if there is no more.
    fn add_next(&mut self, budget: &mut Budget) -> Result<bool, ProjectionError> {
        if let Some(chunk) = self.page.next_chunk() {
            self.add_chunk(&chunk, budget)?;
            return Ok(true);
        }
        match self.page.look() {
            Some(Some(object)) => {
                self.len += self.form.item_len(&object)?;
                budget.write(&object);
            }
            Some(None) => budget.look(),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Adds what the page shows of a chunk.
    fn add_chunk(&mut self, chunk: &Chunk, budget: &mut Budget) -> Result<(), ProjectionError> {
        let (form, measured) = (self.form, self.form.length_form());
        let shown = |object: &&Object| match &self.page.items {
            PageItems::Rest { selector, .. } => selector.matches(object),
            PageItems::Found(_) => true,
        };
        match (chunk.is_measured(measured), self.page.shows_all()) {
            (true, true) => budget.reuse(),
            (true, false) => budget.look_at_all(chunk),
            (false, true) => budget.write_all(chunk),
            (false, false) => {
                budget.write_all(chunk);
                // Of a chunk of which little may be shown, not every object is written for the sake of those who come later.
                for object in chunk.objects().iter().filter(shown) {
                    self.len += form.item_len(object)?;
                }
                return Ok(());
            }
        }
        let len = |object: &Object| u32::try_from(form.item_len(object).ok()?).ok();
        let lens = chunk
            .lens(measured, len)
            .ok_or(ProjectionError::NoMetadata)?;
        self.len += if self.page.shows_all() {
            lens.iter().map(|len| *len as usize).sum::<usize>()
        } else {
            let lens = chunk.objects().iter().zip(lens);
            lens.filter(|(object, _)| shown(object))
                .map(|(_, len)| *len as usize)
                .sum()
        };
        Ok(())
    }
}
