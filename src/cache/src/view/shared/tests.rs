//! A view's form and encoding, the cost of evaluating an event, and reading a range of the history.

use super::*;
use crate::cache::WatchCache;
use crate::cache::samples::{Recorder, World, kind};
use crate::resource::Layout;
use crate::selector::samples::tier;
use crate::view::{ManagedFields, MetaVersion, ObjectFormat, ObjectPart};

fn metadata(encoding: Encoding) -> Option<Projection> {
    let format = ObjectFormat {
        encoding,
        form: ObjectPart::Metadata(MetaVersion::V1),
        managed_fields: ManagedFields::Kept,
    };
    Some(Projection::new(format, &kind(Layout::Typed)).unwrap())
}

fn view(
    selector: Selector,
    projection: Option<Projection>,
    source: Encoding,
) -> (ViewWriter, Arc<View>) {
    let parts = ViewParts {
        selector,
        projection,
        source,
        position: IndexPosition::new(),
        weight: 1,
        opener: Peer::UNKNOWN,
        from: 0,
    };
    ViewWriter::new(parts, &Arc::default())
}

/// A cache with a history of `count` events, each with `data_len` bytes of data.
fn cache(count: u64, data_len: usize) -> Arc<WatchCache> {
    let mut world = World::new(1, 1 << 20, Arc::new(Recorder::default()));
    world.data_len = data_len;
    for number in 0..count {
        let change = world.write(&format!("a/{number}"), Some("x"));
        world.apply(vec![change]);
    }
    Arc::clone(world.writer.cache())
}

fn event(data_len: usize) -> Arc<Event> {
    let mut found = None;
    let read = cache(1, data_len).history().read(0, |_, event| {
        found = Some(Arc::clone(event));
        ControlFlow::Continue(())
    });
    assert_eq!(read, Ok(1));
    found.unwrap()
}

#[test]
fn a_view_shows_events_and_bookmarks_in_its_form() {
    let event = event(100);
    let whole = event.frame(EventKind::Added);
    let template = BookmarkTemplate::guessed(&kind(Layout::Typed));
    let version = ResourceVersion(57);
    let bookmark = template.frame(version, Marker::None);
    for source in [Encoding::Json, Encoding::Protobuf] {
        let (_writer, view) = view(tier("x"), None, source);
        assert_eq!((view.projection(), view.encoding()), (None, source));
        assert_eq!(view.frame(&event, EventKind::Added), Ok(whole.clone()));
        let shown = view.bookmark(&template, version, Marker::None);
        assert_eq!(shown.as_ref(), Ok(&bookmark));
    }
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let projection = metadata(encoding);
        let (_writer, view) = view(tier("x"), projection, Encoding::Json);
        assert_eq!((view.projection(), view.encoding()), (projection, encoding));
        let frame = view.frame(&event, EventKind::Added);
        assert_eq!(frame, projection.unwrap().frame(&whole));
        assert_ne!(frame, Ok(whole.clone()));
        let shown = view.bookmark(&template, version, Marker::None);
        assert_eq!(shown, projection.unwrap().frame(&bookmark));
    }
}

#[test]
fn a_watchers_look_costs_its_terms_and_what_is_cut() {
    let len = 10 * PROJECTED_BYTES_PER_TERM;
    let (_writer, whole) = view(tier("x"), None, Encoding::Json);
    assert_eq!([whole.cost(len, false), whole.cost(len, true)], [2, 2]);
    let (_writer, projection) = view(tier("x"), metadata(Encoding::Json), Encoding::Json);
    assert_eq!(
        [projection.cost(len, false), projection.cost(len, true)],
        [2, 12]
    );
    let (_writer, projection) = view(
        Selector::default(),
        metadata(Encoding::Json),
        Encoding::Json,
    );
    assert_eq!(projection.cost(len, true), 11);
}

#[test]
fn an_offer_costs_terms_what_is_cut_once_and_what_is_copied() {
    let event = event(20_000);
    let len = event.object().frame_len();
    let (mut spare, mut projected) = (Vec::new(), ProjectedFrames::default());
    let mut cost = |selector, projection| {
        let (mut writer, _view) = view(selector, projection, Encoding::Json);
        let offered = writer.offer(&event, &mut spare, &mut projected);
        // The same event again is ignored.
        let again = writer.offer(&event, &mut spare, &mut projected);
        assert_eq!((again.is_first, again.cost), (false, 1));
        (offered.is_first, offered.cost)
    };
    assert_eq!(cost(tier("y"), None), (false, 2));
    assert_eq!(
        cost(Selector::default(), None),
        (true, 1 + len / COPIED_BYTES_PER_TERM)
    );
    let projection = metadata(Encoding::Json);
    let frame = projection
        .unwrap()
        .frame(&event.frame(EventKind::Added))
        .unwrap();
    let copied = frame.len() / COPIED_BYTES_PER_TERM;
    assert_eq!(
        cost(tier("x"), projection),
        (true, 2 + len / PROJECTED_BYTES_PER_TERM + copied)
    );
    assert_eq!(
        cost(tier("x"), projection),
        (true, 2 + copied),
        "the frame was projected before"
    );
}

#[test]
fn a_part_of_the_history_is_shown_to_its_end_and_no_further() {
    let cache = cache(10, 0);
    let history = cache.history();
    let shown = |range: std::ops::Range<Sequence>| {
        let mut shown = Vec::new();
        let next = filtered(history, &tier("x"), range, |event, kind| {
            assert_eq!(kind, Some(EventKind::Added));
            shown.push(event.sequence());
            ControlFlow::Continue(())
        });
        (next.unwrap(), shown)
    };
    assert_eq!(shown(2..5), (5, vec![2, 3, 4]));
    assert_eq!(shown(0..10), (10, (0..10).collect()));
    assert_eq!(shown(4..4), (4, vec![]));
    let upto = |at: Sequence| {
        filtered(history, &tier("x"), 0..9, |event, _| {
            if event.sequence() == at {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    };
    assert_eq!([upto(3), upto(8)], [Ok(4), Ok(9)]);
}
