//! Views show the same events as their selectors alone would, and unwatched views are removed.

use std::borrow::Cow;
use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::cache::samples::{Recorder, World, keep, kind, uncuttable};
use crate::cache::{CacheWriter, Change, Sequence};
use crate::fairness::Peer;
use crate::resource::{Encoding, FieldTable, Gvr, Layout, Object, ObjectParts, ResourceVersion};
use crate::selector::samples::labelled;
use crate::selector::{EVALUATED, FieldSelector, LabelSelector, Selector};
use crate::view::hub::directory::{ViewDirectory, ViewKey, ViewRoom};
use crate::view::{
    Batch, MetaVersion, ObjectFormat, ObjectPart, Projection, TooManyViews, View, seen_as,
};

/// Pods and their history.
struct Pods {
    writer: CacheWriter,
    recorder: Arc<Recorder>,
    version: u64,
    now: Instant,
}

/// A pod (namespace and name), and its node, phase and label; `None` if it is deleted.
type Write = ((usize, usize), Option<(usize, usize, usize)>);

const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["1", "2", "3"];
const NODES: [&str; 3] = ["", "n1", "n2"];
const PHASES: [&str; 2] = ["Pending", "Running"];
const APPS: [&str; 3] = ["", "x", "y"];
const RANKS: [&str; 2] = ["1", "high"];

impl Pods {
    fn new() -> Self {
        let recorder = Arc::new(Recorder::default());
        let mut writer = CacheWriter::new(kind(Layout::Typed), keep(8), Arc::clone(&recorder) as _);
        let now = Instant::now();
        writer.replace(Vec::new(), ResourceVersion(1), now).unwrap();
        let version = 1;
        Self {
            writer,
            recorder,
            version,
            now,
        }
    }

    fn write(&mut self, write: Write) -> Change {
        let ((namespace, name), state) = write;
        self.version += 1;
        let (node, phase, app) = state.unwrap_or_default();
        let mut fields = vec![Cow::default(); table().fields().len()];
        fields[0] = NODES[node].into();
        fields[5] = PHASES[phase].into();
        let label = ("app".into(), APPS[app].into());
        // The label twice, which no server sends: a view must not show the event twice because of it.
        let mut labels = vec![label; if app > 0 { 2 } else { 0 }];
        if node > 0 {
            labels.push(("rank".into(), RANKS[phase].into()));
        }
        let parts = ObjectParts {
            namespace: NAMESPACES[namespace].into(),
            name: NAMES[name].into(),
            resource_version: ResourceVersion(self.version),
            labels,
            fields,
            ..ObjectParts::default()
        };
        let object = Object::new(parts, format!("{{\"v\":{}}}", self.version).as_bytes());
        match state {
            Some(_) => Change::Put(object),
            None => Change::Delete(object),
        }
    }

    fn apply(&mut self, writes: &[Write]) -> Vec<Arc<Event>> {
        let changes: Vec<_> = writes.iter().map(|write| self.write(*write)).collect();
        self.recorder.take();
        self.writer.apply(changes, self.now);
        let dispatches = self.recorder.take().into_iter();
        dispatches.flat_map(|(events, _)| events).collect()
    }
}

fn table() -> FieldTable {
    FieldTable::of(&Gvr::new("", "v1", "pods"))
}

const FIELDS: [&str; 12] = [
    "",
    "",
    "metadata.name=1",
    "metadata.name=1,metadata.name=2",
    "metadata.name!=1",
    "metadata.namespace=a",
    "metadata.namespace=a,metadata.name=2",
    "spec.nodeName=n1",
    "spec.nodeName=",
    "spec.nodeName!=n1",
    "status.phase=Running,spec.nodeName=n2",
    "status.phase=Running",
];
const LABELS: [&str; 18] = [
    "",
    "",
    "app=x",
    "app=y",
    "app in (x,y)",
    "app in (x,z)",
    "!app",
    "app!=x",
    "app notin (x,z)",
    "app=x,app=y",
    "app",
    "rank",
    "app,rank",
    "!app,rank",
    "app in (x,y),rank",
    "rank>0",
    "rank<9,app",
    // More values than a view is indexed by.
    "app in (a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,y)",
];

fn selector(namespace: Option<usize>, fields: usize, labels: usize) -> Selector {
    Selector {
        namespace: namespace.map(|index| NAMESPACES[index].into()),
        labels: LabelSelector::parse(LABELS[labels]).unwrap(),
        fields: FieldSelector::parse(FIELDS[fields], table()).unwrap(),
        shard: None,
    }
}

/// A bounded room for the single client that most tests have.
fn bounded() -> ViewRoom {
    ViewRoom::Bounded(Peer::UNKNOWN)
}

/// The two parts of a hub: directory and view table.
struct Views {
    directory: ViewDirectory,
    view_table: ViewTable,
}

impl Views {
    fn new() -> Self {
        let hasher = Hasher::default();
        Self {
            directory: ViewDirectory::new(&hasher),
            view_table: ViewTable::new(hasher),
        }
    }

    fn apply_changes(&mut self) {
        self.view_table.apply_changes(self.directory.take_changes());
    }

    fn try_enter(
        &mut self,
        selector: &Selector,
        room: ViewRoom,
    ) -> Result<Arc<View>, TooManyViews> {
        let projection = None;
        let key = ViewKey {
            selector,
            projection,
        };
        let view = self.directory.enter(key, Encoding::Json, room);
        self.apply_changes();
        view
    }

    fn enter(&mut self, selector: &Selector) -> Arc<View> {
        self.try_enter(selector, ViewRoom::Unbounded).unwrap()
    }

    /// Lays out all events, and returns the views that show some of them.
    fn lay_out(&mut self, events: &[Arc<Event>], now: Instant) -> Vec<Arc<ViewCore>> {
        self.apply_changes();
        let mut shown = Vec::new();
        let laid_out = self.view_table.lay_out(events, now, &mut shown);
        assert_eq!(laid_out.events, events.len());
        shown
    }
}

/// The part of a dispatch that a view must show, from evaluating its selector for each event.
fn expected(
    events: &[Arc<Event>],
    selector: &Selector,
) -> Option<(Sequence, Sequence, usize, Vec<u8>)> {
    let seen = events
        .iter()
        .filter_map(|event| Some((event.sequence(), event.frame(seen_as(event, selector)?))));
    let seen: Vec<_> = seen.collect();
    let frames = seen.iter().flat_map(|(_, frame)| frame.to_vec()).collect();
    Some((seen.first()?.0, seen.last()?.0, seen.len(), frames))
}

fn shown(view: &View, cursor: &mut Sequence) -> Vec<Batch> {
    let mut batches = Vec::new();
    let read = view.read(*cursor, |batch| {
        batches.push(batch.clone());
        ControlFlow::Continue(())
    });
    *cursor = read.unwrap();
    batches
}

#[derive(Clone, Debug)]
enum Step {
    Join(Option<usize>, usize, usize),
    Leave(usize),
    Dispatch(Vec<Write>),
}

fn step() -> impl Strategy<Value = Step> {
    let pod = (0..NAMESPACES.len(), 0..NAMES.len());
    let state = (0..NODES.len(), 0..PHASES.len(), 0..APPS.len());
    let write = (pod, proptest::option::weighted(0.8, state));
    let namespace = proptest::option::weighted(0.4, 0..NAMESPACES.len());
    let join = (namespace, 0..FIELDS.len(), 0..LABELS.len());
    prop_oneof![
        2 => join.prop_map(|(namespace, fields, labels)| Step::Join(namespace, fields, labels)),
        1 => any::<prop::sample::Index>().prop_map(|index| Step::Leave(index.index(1 << 10))),
        4 => proptest::collection::vec(write, 0..4).prop_map(Step::Dispatch),
    ]
}

/// A watch: its view, cursor and selector.
struct Watcher {
    view: Arc<View>,
    cursor: Sequence,
    selector: Selector,
}

proptest! {
    #[test]
    fn each_view_shows_what_a_look_at_all_views_would_have_it_show(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let (mut pods, mut views) = (Pods::new(), Views::new());
        let mut watchers: Vec<Watcher> = Vec::new();
        for step in steps {
            match step {
                Step::Join(namespace, fields, labels) => {
                    let selector = selector(namespace, fields, labels);
                    let view = views.enter(&selector);
                    let alike = watchers.iter().find(|other| other.selector == selector);
                    prop_assert!(alike.is_none_or(|alike| Arc::ptr_eq(&alike.view, &view)));
                    watchers.push(Watcher { cursor: view.head(), view, selector });
                }
                Step::Leave(index) => {
                    if !watchers.is_empty() {
                        watchers.swap_remove(index % watchers.len());
                    }
                }
                Step::Dispatch(writes) => {
                    let events = pods.apply(&writes);
                    let woken = views.lay_out(&events, pods.now);
                    for watcher in &mut watchers {
                        let batches = shown(&watcher.view, &mut watcher.cursor);
                        let actual: Vec<_> = batches
                            .iter()
                            .map(|batch| (batch.first, batch.last, batch.count, batch.frames.to_vec()))
                            .collect();
                        let expected = expected(&events, &watcher.selector);
                        let wakes = woken.iter().filter(|core| Arc::ptr_eq(core, watcher.view.core()));
                        prop_assert_eq!(wakes.count(), usize::from(expected.is_some()));
                        prop_assert_eq!(actual, Vec::from_iter(expected), "{:?}", watcher.selector);
                    }
                }
            }
        }
    }
}

/// How often the view of each of these selectors is evaluated for one event.
fn looks(labels: &[&str], write: Write) -> Vec<usize> {
    let (mut pods, mut views) = (Pods::new(), Views::new());
    let _entered: Vec<_> = labels
        .iter()
        .map(|text| views.enter(&labelled(text)))
        .collect();
    let mut looks = vec![0; labels.len()];
    for event in pods.apply(&[write]) {
        views
            .view_table
            .index
            .concerned(&event, |number| looks[number as usize] += 1);
    }
    looks
}

#[test]
fn only_selectors_that_any_object_could_meet_are_looked_at_for_each_event() {
    let bare = ((0, 0), Some((0, 0, 0)));
    let labels = [
        "rank",
        "rank>0",
        "app in (x,y)",
        "app,rank",
        "!rank",
        "app!=x",
    ];
    assert_eq!(looks(&labels, bare), [0, 0, 0, 0, 1, 1]);
    let ranked = ((0, 0), Some((1, 0, 0)));
    assert_eq!(looks(&["rank", "app", "rank=2"], ranked), [1, 0, 0]);
}

#[test]
fn unwatched_views_are_dropped_without_a_matching_event() {
    let (mut pods, mut views) = (Pods::new(), Views::new());
    let stays = views.enter(&selector(None, 7, 0));
    for fields in 0..FIELDS.len() {
        for labels in 0..LABELS.len() {
            drop(views.enter(&selector(Some(1), fields, labels)));
        }
    }
    assert_eq!(views.directory.view_count(), 1);
    let events = pods.apply(&[((0, 0), Some((2, 0, 0)))]);
    views.lay_out(&events, pods.now);
    assert_eq!(views.view_table.views.len(), 1);
    assert!(Arc::ptr_eq(&stays, &views.enter(&selector(None, 7, 0))));
}

/// Clients may open watches with new selectors again and again while no event happens.
#[test]
fn short_lived_views_without_events_stay_few() {
    let mut views = Views::new();
    for index in 0..10_000 {
        let selector = Selector {
            namespace: Some(index.to_string()),
            ..Selector::default()
        };
        drop(views.enter(&selector));
        let remaining = views.view_table.views.len();
        assert!(remaining <= 8, "{remaining}");
    }
}

/// A selector that requires the absence of `count` labels, different ones for each `seed`.
fn absent(seed: usize, count: usize) -> Selector {
    let terms = (0..count).map(|index| format!("!k{seed}x{index}"));
    labelled(&terms.collect::<Vec<_>>().join(","))
}

#[test]
fn nothing_is_evaluated_for_views_that_nobody_watches() {
    let (mut pods, mut views) = (Pods::new(), Views::new());
    let mut entered: Vec<_> = (0..3_000)
        .map(|seed| views.enter(&absent(seed, 5)))
        .collect();
    let write = ((0, 0), Some((0, 0, 0)));
    let mut evaluated = |views: &mut Views| {
        let events = pods.apply(&[write]);
        EVALUATED.set(0);
        views.lay_out(&events, pods.now);
        EVALUATED.get()
    };
    assert_eq!(
        evaluated(&mut views),
        3_000 * 5,
        "a created object has one state to evaluate"
    );
    entered.truncate(10);
    // More views than one dispatch removes.
    assert_eq!(evaluated(&mut views), 2 * 10 * 5);
    let remaining = views.view_table.views.len();
    assert!((1_000..3_000).contains(&remaining), "{remaining}");
    (0..10).for_each(|_| _ = evaluated(&mut views));
    assert_eq!(views.view_table.views.len(), 10);
}

/// Each removal searches all views under the same values.
#[test]
fn views_of_one_bucket_are_dropped_a_bounded_number_per_batch() {
    let mut views = Views::new();
    // With one term each, the views weigh nothing, however many there are.
    let set = |index| labelled(&format!("app in (a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,x{index})"));
    let entered: Vec<_> = (0..2_000).map(|index| views.enter(&set(index))).collect();
    views.apply_changes();
    drop(entered);
    views.apply_changes();
    let gone = 2_000 - views.view_table.views.len();
    assert!((20..200).contains(&gone), "{gone}");
    while !views.view_table.unwatched.is_empty() {
        views.apply_changes();
    }
    assert!(views.view_table.views.is_empty() && views.view_table.index.is_empty());
}

#[test]
fn of_views_that_are_not_alike_a_thousand_go_with_one_batch() {
    let mut views = Views::new();
    let namespace = |index: usize| Selector {
        namespace: Some(index.to_string()),
        ..Selector::default()
    };
    let entered: Vec<_> = (0..3_000)
        .map(|index| views.enter(&namespace(index)))
        .collect();
    drop(entered);
    for remaining in [3_000 - 1_024, 3_000 - 2 * 1_024, 0] {
        views.apply_changes();
        assert_eq!(views.view_table.views.len(), remaining);
    }
}

#[test]
fn what_all_views_cost_an_event_is_bounded() {
    let (mut pods, mut views) = (Pods::new(), Views::new());
    let mut entered = Vec::new();
    for seed in 0..1_000 {
        entered.extend(views.try_enter(&absent(seed, 60), bounded()));
    }
    assert!(entered.len() > 40, "{}", entered.len());
    let events = pods.apply(&[((0, 0), Some((0, 0, 0)))]);
    EVALUATED.set(0);
    views.lay_out(&events, pods.now);
    assert_eq!(EVALUATED.get(), entered.len() * 60);
    assert!(EVALUATED.get() <= 4_096);
    // Joining an existing view costs nothing more.
    views.try_enter(&absent(0, 60), bounded()).unwrap();
    // Views with one value, and with terms that few events reach.
    for index in 0..10_000 {
        let text = format!("app=x{index}");
        entered.push(views.try_enter(&labelled(&text), bounded()).unwrap());
        let text = format!("app=x{index},rank,!other");
        entered.push(views.try_enter(&labelled(&text), bounded()).unwrap());
    }
    assert_eq!(
        views.try_enter(&absent(2_000, 60), bounded()).err(),
        Some(TooManyViews)
    );
    entered.remove(0);
    views.try_enter(&absent(2_000, 60), bounded()).unwrap();
}

#[test]
fn views_under_one_value_are_bounded_as_well() {
    let mut views = Views::new();
    let mut entered = Vec::new();
    for seed in 0..10_000 {
        let selector = Selector {
            namespace: Some("a".into()),
            ..absent(seed, 1)
        };
        entered.extend(views.try_enter(&selector, bounded()));
    }
    assert_eq!(entered.len(), 3_277, "one client's share of 4,096");
    let elsewhere = Selector {
        namespace: Some("b".into()),
        ..absent(0, 1)
    };
    views.try_enter(&elsewhere, bounded()).unwrap();
}

/// Joins views with different selectors until one is refused.
fn fill(views: &mut Views, peer: Peer, selector: impl Fn(usize) -> Selector) -> Vec<Arc<View>> {
    let entered: Vec<_> = (0..50_000)
        .map_while(|index| {
            views
                .try_enter(&selector(index), ViewRoom::Bounded(peer))
                .ok()
        })
        .collect();
    assert!(entered.len() < 50_000, "no view was refused");
    entered
}

#[test]
fn one_client_leaves_room_for_the_selectors_of_others() {
    let peer = |last| Peer::from(std::net::IpAddr::from([10, 0, 0, last]));
    let (greedy, other) = (peer(1), peer(2));
    let in_namespace = |index| Selector {
        namespace: Some("a".into()),
        ..absent(index, 10)
    };
    let of_many_values = |index| labelled(&format!("app=x{index},{}", absent(index, 60).labels));
    let kinds: [&dyn Fn(usize) -> Selector; 3] =
        [&|index| absent(index, 60), &in_namespace, &of_many_values];
    for selector in kinds {
        let mut views = Views::new();
        let held = fill(&mut views, greedy, selector);
        let new = |index: usize| selector(60_000 + index);
        let first = views.try_enter(&new(0), ViewRoom::Bounded(other));
        let first = first.expect("the other client has room");
        // Joining an existing view is free for every client.
        let shared = views
            .try_enter(&selector(0), ViewRoom::Bounded(other))
            .unwrap();
        assert!(Arc::ptr_eq(&shared, &held[0]));
        assert!(views.try_enter(&new(1), ViewRoom::Bounded(greedy)).is_err());
        drop((first, shared, held));
        views.try_enter(&new(1), ViewRoom::Bounded(greedy)).unwrap();
    }
}

#[test]
fn a_view_is_closed_by_an_event_only_when_all_before_it_can_be_read() {
    let recorder = Arc::new(Recorder::default());
    let mut world = World::new(1, 100, Arc::clone(&recorder) as _);
    let shown = world.write("a/1", None);
    let hidden = Change::Put(uncuttable("a/2", world.version + 1));
    world.apply(vec![shown, hidden]);
    let dispatches = recorder.take().into_iter();
    let events: Vec<_> = dispatches.flat_map(|(events, _)| events).collect();

    let mut directory = ViewDirectory::new(&Hasher::default());
    let metadata = ObjectFormat {
        form: ObjectPart::Metadata(MetaVersion::V1),
        ..ObjectFormat::default()
    };
    let key = ViewKey {
        selector: &Selector::default(),
        projection: Projection::new(metadata, &kind(Layout::Typed)),
    };
    let view = directory.enter(key, Encoding::Json, bounded()).unwrap();
    let mut writer = directory.take_changes().added.remove(0);
    for event in &events {
        writer.offer(event, &mut Vec::new(), &mut ProjectedFrames::default());
        assert!(
            !view.is_closed(),
            "a watcher would end without the first event"
        );
    }
    writer.finish(world.now);
    assert!(view.is_closed());
    assert_eq!(view.head(), 1);
}

/// Other tasks run between two slices.
#[test]
fn a_batch_that_costs_much_is_laid_out_in_parts() {
    let (mut pods, mut views) = (Pods::new(), Views::new());
    let _entered: Vec<_> = (0..50).map(|seed| views.enter(&absent(seed, 60))).collect();
    let writes: Vec<_> = (0..100)
        .map(|index| ((0, index % 3), Some((0, 0, 0))))
        .collect();
    let events = pods.apply(&writes);
    let (mut rest, mut parts) = (&events[..], 0);
    while !rest.is_empty() {
        EVALUATED.set(0);
        let laid_out = views.view_table.lay_out(rest, pods.now, &mut Vec::new());
        assert!(laid_out.events > 0 && EVALUATED.get() < 80_000);
        rest = &rest[laid_out.events..];
        parts += 1;
    }
    assert!(parts > 5, "{parts}");
}

#[test]
fn unwatched_events_are_charged_by_size() {
    let mut view_table = ViewTable::new(Hasher::default());
    for data_len in [0, 20_000] {
        let mut world = World::new(1, 1 << 20, Arc::new(Recorder::default()));
        world.data_len = data_len;
        for number in 0..3_000 {
            let change = world.write(&format!("a/{}", number % 3), None);
            world.apply(vec![change]);
        }
        let mut events = Vec::new();
        let history = world.writer.cache().history();
        let read = history.read(0, |_, event| {
            events.push(Arc::clone(event));
            ControlFlow::Continue(())
        });
        assert_eq!(read, Ok(3_000));
        let (mut count, mut cost) = (0, 0);
        while cost < SLICE_COST {
            cost += EVENT_COST + events[count].object().frame_len() / OBJECT_BYTES_PER_TERM;
            count += 1;
        }
        let laid_out = view_table.lay_out(&events, world.now, &mut Vec::new());
        assert_eq!((laid_out.events, laid_out.lines), (count, 0));
        assert!(count < 3_000);
    }
}

#[test]
fn small_batches_keep_their_buffers_and_large_ones_free_them() {
    let (mut pods, mut views) = (Pods::new(), Views::new());
    let _entered = [
        views.enter(&selector(None, 0, 0)),
        views.enter(&selector(None, 0, 6)),
    ];
    for (count, kept) in [(300, 0), (3, 2), (300, 0)] {
        let events = pods.apply(&vec![((0, 0), Some((0, 0, 0))); count]);
        let shown = views.lay_out(&events, pods.now);
        assert_eq!(
            (shown.len(), views.view_table.spare.len()),
            (2, kept),
            "{count}"
        );
    }
}

#[test]
fn views_take_turns_to_drop_old_batches() {
    let (mut pods, mut views) = (Pods::new(), Views::new());
    let entered = [0, 6, 7].map(|labels| views.enter(&selector(None, 0, labels)));
    let events = pods.apply(&[((0, 0), Some((0, 0, 0)))]);
    assert_eq!(views.lay_out(&events, pods.now).len(), entered.len());
    let later = pods.now + std::time::Duration::from_secs(10);
    let holding = |entered: &[Arc<View>]| {
        entered
            .iter()
            .filter(|view| view.read(0, |_| ControlFlow::Continue(())).is_ok())
            .count()
    };
    assert_eq!(holding(&entered), entered.len());
    for _ in 0..views.view_table.views.capacity() {
        let before = holding(&entered);
        views.lay_out(&[], later);
        assert!(holding(&entered) + SWEPT_PER_BATCH >= before);
    }
    assert_eq!(holding(&entered), 0);
}
