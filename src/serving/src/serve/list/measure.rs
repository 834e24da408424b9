//! Measures the items of a page, because a protobuf list states their length before the first one. Works in steps, so that other
//! requests can run in between, and keeps the lengths with the chunks of the snapshot. Pure.

use std::task::Poll;

use super::item_format::ItemFormat;
use super::page::{PageItems, SnapshotPage};
use super::step::Budget;
use crate::cache::Chunk;
use crate::resource::{Encoding, Object, ResourceKind};
use crate::view::{ObjectFormat, ProjectionError};

/// The measurement of a page, in progress.
#[derive(Debug)]
pub struct PageMeasurement {
    page: SnapshotPage,
    form: ItemFormat,
    /// Length of the items so far, including their tags and length prefixes.
    len: usize,
}

impl SnapshotPage {
    /// Starts to measure the page's items in this format.
    #[must_use]
    pub fn measure(&self, kind: &ResourceKind, format: ObjectFormat) -> PageMeasurement {
        PageMeasurement {
            page: self.clone(),
            form: ItemFormat::new(kind, format),
            len: 0,
        }
    }
}

impl PageMeasurement {
    /// Does one step. Ready with the length of all items once it is known; with 0 for JSON, which does not need it.
    ///
    /// # Errors
    /// An item cannot be written in this format.
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

    /// Adds the next chunk or object; false at the end.
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

    /// Adds the items of a chunk that are on the page.
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
                // Do not measure a whole chunk, for lists to come, if this page may need only a few of its objects.
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
            chunk
                .objects()
                .iter()
                .zip(lens)
                .filter(|(object, _)| shown(object))
                .map(|(_, len)| *len as usize)
                .sum()
        };
        Ok(())
    }
}
