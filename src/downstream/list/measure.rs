//! How long a page's items are together, which a list in protobuf says before the first of them. Found out in steps, so that
//! other requests get their turn between them, and kept with the chunks of the snapshot. Pure.

use super::{ItemForm, Items, Page};
use crate::cache::Chunk;
use crate::resource::{Encoding, Object, ResourceKind};
use crate::view::{CutError, Rendition};

/// Bytes of objects that one step looks at, about: a millisecond or two where each has to be written.
const STEP_LEN: usize = 512 << 10;
/// What an object counts at least that has to be written: a short one takes time, too.
const OBJECT_LEN: usize = 2 << 10;
/// What an object counts that only the selector looks at.
const SELECTED_LEN: usize = 256;
/// What a chunk counts that is shown as a whole and whose lengths are known already.
const KNOWN_LEN: usize = STEP_LEN / 128;

/// A page that is being measured.
#[derive(Debug)]
pub struct Measure {
    page: Page,
    form: ItemForm,
    /// Of the items so far, their tags and lengths included.
    len: usize,
}

impl Page {
    /// Begins to measure the page's items in this form.
    #[must_use]
    pub fn measure(&self, kind: &ResourceKind, rendition: Rendition) -> Measure {
        Measure {
            page: self.clone(),
            form: ItemForm::new(kind, rendition),
            len: 0,
        }
    }
}

impl Measure {
    /// Goes on a little. The length of all items when it is known; 0 in JSON, which does not need it.
    ///
    /// # Errors
    /// One of them cannot be written in this form.
    pub fn step(&mut self) -> Result<Option<usize>, CutError> {
        if self.form.encoding() == Encoding::Json {
            return Ok(Some(0));
        }
        let mut looked = 0;
        while looked < STEP_LEN {
            looked += if let Some(chunk) = self.page.next_chunk() {
                self.add_chunk(&chunk)?
            } else {
                match self.page.look() {
                    Some(Some(object)) => {
                        self.len += self.form.item_len(&object)?;
                        object.frame_len().max(OBJECT_LEN)
                    }
                    Some(None) => SELECTED_LEN,
                    None => return Ok(Some(self.len)),
                }
            };
        }
        Ok(None)
    }

    /// Adds what the page shows of a chunk; returns what that counts.
    fn add_chunk(&mut self, chunk: &Chunk) -> Result<usize, CutError> {
        let (form, measured) = (self.form, self.form.measured());
        let was_measured = chunk.is_measured(measured);
        let looked = chunk.frames_len().max(chunk.objects().len() * OBJECT_LEN);
        let shown = |object: &&Object| match &self.page.items {
            Items::Rest { selector, .. } => selector.matches(object),
            Items::Found(_) => true,
        };
        // Of a chunk of which little may be shown, not every object is written for the sake of those who come later.
        if !was_measured && !self.page.shows_all() {
            for object in chunk.objects().iter().filter(shown) {
                self.len += form.item_len(object)?;
            }
            return Ok(looked);
        }
        let len = |object: &Object| u32::try_from(form.item_len(object).ok()?).ok();
        let lens = chunk.lens(measured, len).ok_or(CutError::NoMetadata)?;
        self.len += if self.page.shows_all() {
            lens.iter().map(|len| *len as usize).sum::<usize>()
        } else {
            let lens = chunk.objects().iter().zip(lens);
            lens.filter(|(object, _)| shown(object))
                .map(|(_, len)| *len as usize)
                .sum()
        };
        Ok(match (was_measured, self.page.shows_all()) {
            (true, true) => KNOWN_LEN,
            (true, false) => chunk.objects().len() * SELECTED_LEN,
            (false, _) => looked,
        })
    }
}
