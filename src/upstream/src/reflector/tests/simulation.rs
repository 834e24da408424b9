//! A seeded run against a model of the API server that misbehaves, stalls and breaks off.
//!
//! The model keeps every revision, so the state that a driver holds is compared with the model's state at the claimed
//! version *after every step*, not only at the end. A failure prints its seed, and the seed replays it. Drivers with a
//! planted flaw must be caught.

use std::collections::BTreeMap;

use super::*;

/// Maps a key to the version of its last write.
type State = BTreeMap<u8, u64>;

/// Knuth's linear congruential generator. Its high bits are random enough for this purpose.
struct Dice(u64);

impl Dice {
    fn half(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    fn next(&mut self) -> u64 {
        self.half() << 32 | self.half()
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.half() % limit
    }

    /// True with probability 1/n.
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Copy)]
struct Write {
    version: u64,
    key: u8,
    kind: EventKind,
}

/// The API server with its whole history. Clients can watch only from `floor` on.
struct Model {
    history: Vec<Write>,
    /// The state after each write of `history`.
    states: Vec<State>,
    revision: u64,
    floor: u64,
}

const KEYS: u64 = 24;

impl Model {
    fn state_at(&self, version: u64) -> State {
        let write_count = self.write_count(version);
        let last = write_count.checked_sub(1);
        last.map_or_else(State::new, |last| self.states[last].clone())
    }

    /// How many writes had happened at `version`.
    fn write_count(&self, version: u64) -> usize {
        self.history
            .partition_point(|write| write.version <= version)
    }

    fn write(&mut self, dice: &mut Dice) {
        // Other resources share the counter, so versions have gaps.
        self.revision += 1 + dice.below(3);
        #[allow(clippy::cast_possible_truncation, reason = "below 24")]
        let key = dice.below(KEYS) as u8;
        let mut state = self.state_at(self.revision);
        let exists = state.contains_key(&key);
        let kind = match (exists, dice.once_in(3)) {
            (false, _) => EventKind::Added,
            (true, false) => EventKind::Modified,
            (true, true) => EventKind::Deleted,
        };
        let version = self.revision;
        let write = Write { version, key, kind };
        apply(&mut state, write);
        self.history.push(write);
        self.states.push(state);
    }

    fn between(&self, after: u64, up_to: u64) -> Vec<Write> {
        let range = self.write_count(after)..self.write_count(up_to);
        self.history[range].to_vec()
    }

    /// The version of the replica that serves a request; `None` if it is behind the requested version.
    fn replica(&self, requested: ListVersion, dice: &mut Dice) -> Option<u64> {
        let behind = dice.below(6).min(self.revision - self.floor);
        let version = self.revision - behind;
        match requested {
            Any => Some(version),
            Latest => Some(self.revision),
            // Some replicas respond although they are behind.
            AtLeast(_) if dice.once_in(4) => Some(version),
            AtLeast(least) => Some(version).filter(|version| *version >= least.0),
        }
    }
}

fn apply(state: &mut State, write: Write) {
    match write.kind {
        EventKind::Added | EventKind::Modified => state.insert(write.key, write.version),
        EventKind::Deleted => state.remove(&write.key),
    };
}

/// A planted flaw of the driver, which the simulation must detect.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    KeepsSideBuffer,
    AppliesIgnored,
    SkipsEvents,
}

#[derive(Clone, Copy, PartialEq)]
enum Faults {
    /// All faults.
    All,
    /// Faults that must never lead to a relist.
    Harmless,
    None,
}

struct World {
    dice: Dice,
    model: Model,
    reflector: ReflectorMachine,
    now: Instant,
    initial: State,
    held: State,
    flaw: Flaw,
    faults: Faults,
    applied: u64,
    request_count: u64,
}

type Check = Result<(), String>;
/// Whether the held state is the newest one.
type Settled = Result<bool, String>;

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut dice = Dice(seed);
        let options = ReflectorOptions {
            streaming: match dice.once_in(3) {
                true => StreamingLists::Never,
                false => StreamingLists::Preferred,
            },
            page_len: 5,
            start_from: None,
            initial: match dice.once_in(2) {
                true => InitialVersion::Any,
                false => InitialVersion::Latest,
            },
        };
        let mut model = Model {
            history: Vec::new(),
            states: Vec::new(),
            revision: 1,
            floor: 1,
        };
        for _ in 0..20 {
            model.write(&mut dice);
        }
        Self {
            dice,
            model,
            reflector: ReflectorMachine::new(options),
            now: Instant::now(),
            initial: State::new(),
            held: State::new(),
            flaw,
            faults: Faults::All,
            applied: 0,
            request_count: 0,
        }
    }

    /// Reports an input to the reflector, carries out the effect, and compares the held state with the model's at the
    /// claimed version.
    fn observe(&mut self, input: Input, writes: &[Write]) -> Check {
        let what = format!("{input:?}");
        let effect = self.reflector.observe(input, self.now);
        let before = self.applied;
        self.perform(effect, writes);
        if self.applied < before {
            return Err(format!(
                "went back from {before} to {} on {what}",
                self.applied
            ));
        }
        if self.reflector.version().unwrap_or_default().0 != self.applied {
            return Err(format!("versions differ after {what}"));
        }
        if self.applied > 0 && self.held != self.model.state_at(self.applied) {
            return Err(format!(
                "held state is wrong at {} after {what}",
                self.applied
            ));
        }
        Ok(())
    }

    fn perform(&mut self, effect: Effect, writes: &[Write]) {
        let into = |state: &mut State| writes.iter().for_each(|write| apply(state, *write));
        match effect {
            Effect::InitialItem => into(&mut self.initial),
            Effect::InitialDone { resource_version } => {
                into(&mut self.initial);
                self.held = std::mem::take(&mut self.initial);
                self.applied = resource_version.0;
            }
            Effect::Live => {
                self.applied = writes[0].version;
                if self.flaw != Flaw::SkipsEvents || !self.applied.is_multiple_of(50) {
                    into(&mut self.held);
                }
            }
            Effect::Progress { resource_version } => self.applied = resource_version.0,
            Effect::Late if self.flaw == Flaw::AppliesIgnored => into(&mut self.held),
            Effect::Restarted if self.flaw == Flaw::KeepsSideBuffer => {}
            Effect::Restarted | Effect::Relisting { .. } => self.initial.clear(),
            Effect::None | Effect::Late | Effect::EndWatch | Effect::Ignored | Effect::Proven => {}
        }
    }

    /// Reports how an attempt ended.
    fn end(&mut self, input: Input) -> Settled {
        self.observe(input, &[]).map(|()| false)
    }

    /// Performs one action completely.
    fn step(&mut self) -> Settled {
        let random = self.dice.next();
        let action = self.reflector.next_action(self.now, random);
        if !matches!(action, Action::WaitUntil(_)) {
            self.request_count += 1;
        }
        match action {
            Action::WaitUntil(at) => self.wait(at),
            Action::Stop(_) => Err("stopped".to_owned()),
            Action::List {
                resource_version,
                continue_token,
                limit,
                ..
            } => self.list(resource_version, continue_token, limit),
            Action::WatchList {
                resource_version, ..
            } => self.watch_list(resource_version),
            Action::Watch { after } => self.watch(after.0),
            Action::Compare => self.compare(),
        }
    }

    fn wait(&mut self, at: Instant) -> Settled {
        let wait = at.saturating_duration_since(self.now);
        if wait.is_zero() || wait > Duration::from_secs(60) {
            return Err(format!("waits {wait:?}"));
        }
        self.now = at;
        self.disturb();
        Ok(false)
    }

    fn list(
        &mut self,
        requested: ListVersion,
        token: Option<String>,
        limit: Option<u32>,
    ) -> Settled {
        if let Some(failure) = self.refusal() {
            return self.end(Input::ListFailed(failure));
        }
        let (mut version, from): (u64, u8) = match token {
            Some(token) => {
                let (version, from) = token.split_once(':').unwrap();
                (version.parse().unwrap(), from.parse().unwrap())
            }
            None => match self.model.replica(requested, &mut self.dice) {
                Some(version) => (version, 0),
                None => return self.end(Input::ListFailed(version_ahead())),
            },
        };
        if from > 0 && version < self.model.floor {
            return self.end(Input::ListFailed(http(410)));
        }
        if from > 0 && self.faults == Faults::All && self.dice.once_in(12) {
            // Some servers read each page from their current state.
            version = self.model.revision;
        }
        let state = self.model.state_at(version);
        let rest: Vec<Write> = state.range(from..).map(as_added).collect();
        let count = limit.map_or(rest.len(), |limit| rest.len().min(limit as usize));
        let next = rest.get(count);
        let token = next.map_or_else(String::new, |next| format!("{version}:{}", next.key));
        self.disturb();
        self.observe(page(version, &token), &rest[..count])?;
        Ok(false)
    }

    fn compare(&mut self) -> Settled {
        let comparison = match (self.refusal(), self.held == self.model.state_at(u64::MAX)) {
            (Some(_), _) => Comparison::Unknown(0),
            (None, true) => Comparison::Equal,
            (None, false) => Comparison::Different,
        };
        self.end(Input::Compared(comparison))
    }

    fn watch_list(&mut self, requested: ListVersion) -> Settled {
        if let Some(failure) = self.refusal() {
            return self.end(Input::WatchFailed(failure));
        }
        if self.faults == Faults::All && self.dice.once_in(8) {
            return self.end(Input::WatchFailed(http(422)));
        }
        self.observe(Input::WatchOpened, &[])?;
        let Some(version) = self.model.replica(requested, &mut self.dice) else {
            return self.end(Input::WatchFailed(version_ahead()));
        };
        for write in self.model.state_at(version).iter().map(as_added) {
            if let Some(end) = self.interruption() {
                return self.end(end);
            }
            self.observe(input_of(write), &[write])?;
            self.disturb();
        }
        // Changes may arrive before the marker, which then has the version of the last one.
        let mut marker_version = version;
        for write in self.model.between(version, self.model.revision) {
            if self.dice.once_in(2) {
                break;
            }
            self.observe(input_of(write), &[write])?;
            marker_version = write.version;
        }
        self.observe(marker(marker_version), &[])?;
        self.follow(marker_version)
    }

    fn watch(&mut self, after: u64) -> Settled {
        if let Some(failure) = self.refusal() {
            return self.end(Input::WatchFailed(failure));
        }
        self.observe(Input::WatchOpened, &[])?;
        if after < self.model.floor && self.faults != Faults::Harmless {
            return self.end(Input::WatchError(UpstreamStatus::of_code(410)));
        }
        // A server that starts too early repeats events.
        let repeats = self.faults != Faults::None && self.dice.once_in(3);
        let back = if repeats { self.dice.below(8) } else { 0 };
        let from = after.saturating_sub(back);
        if repeats {
            self.observe(bookmark(from), &[])?;
        }
        self.follow(from)
    }

    /// Delivers the changes after `sent` until something ends the watch, or without faults until no change is left.
    fn follow(&mut self, mut sent: u64) -> Settled {
        loop {
            if let Some(end) = self.interruption() {
                self.now += Duration::from_millis(self.dice.below(3_000));
                return self.end(end);
            }
            self.disturb();
            let newest = self.model.revision;
            if let Some(&write) = self.model.between(sent, newest).first() {
                self.observe(input_of(write), &[write])?;
                sent = write.version;
            } else if self.faults == Faults::None || self.dice.once_in(2) {
                self.observe(bookmark(newest), &[])?;
                sent = newest;
            }
            if self.faults == Faults::None && sent == newest {
                return Ok(self.applied == newest);
            }
        }
    }

    /// Other clients write, and history is compacted, while requests are under way.
    fn disturb(&mut self) {
        if self.faults == Faults::None {
            return;
        }
        self.now += Duration::from_millis(self.dice.below(50));
        if self.dice.once_in(3) {
            self.model.write(&mut self.dice);
        }
        if self.faults == Faults::All && self.dice.once_in(60) {
            self.model.floor = self.model.revision;
        }
    }

    /// The failure of a request that is refused or cannot be sent; `None` if the request succeeds.
    fn refusal(&mut self) -> Option<Failure> {
        let throw = self.dice.below(40);
        match (self.faults, throw) {
            (Faults::None, _) => None,
            (_, 0 | 1) => Some(Failure::Transport),
            (_, 2) => Some(busy(429, 1)),
            (_, 3) => Some(http(503)),
            (_, 4) => Some(http(401)),
            (_, 5) => Some(http(500)),
            (Faults::All, 6) => Some(http(410)),
            (Faults::All, 7) => Some(Failure::Protocol),
            (Faults::All, 8) => Some(http(404)),
            (Faults::All, 9) => Some(http(400)),
            _ => None,
        }
    }

    /// The input that ends a watch at this point; `None` if it continues.
    fn interruption(&mut self) -> Option<Input> {
        let throw = self.dice.below(150);
        match (self.faults, throw) {
            (Faults::None, _) => None,
            (_, 0..=2) => Some(Input::WatchFailed(Failure::Transport)),
            (_, 3..=5) => Some(Input::WatchEnded),
            (_, 6) => Some(Input::WatchError(UpstreamStatus::of_code(504))),
            (_, 7) => Some(Input::WatchError(UpstreamStatus::of_code(500))),
            (Faults::All, 8 | 9) => Some(Input::WatchFailed(Failure::Protocol)),
            (Faults::All, 10) => Some(Input::WatchError(UpstreamStatus::of_code(410))),
            _ => None,
        }
    }

    /// No faults and no writes: the newest state must be reached within few requests.
    fn quiet(&mut self) -> Check {
        self.faults = Faults::None;
        for _ in 0..40 {
            if !self.step()? {
                continue;
            }
            let newest = self.model.state_at(self.model.revision);
            return match self.held == newest {
                true => Ok(()),
                false => Err("the last state is wrong".to_owned()),
            };
        }
        Err("no end after forty steps of quiet".to_owned())
    }

    fn relist_count(&self) -> u64 {
        let reasons = Reason::VARIANTS.iter().copied();
        reasons
            .filter(|reason| *reason != Reason::WatchFailed)
            .map(|reason| self.reflector.counters().relists(reason))
            .sum()
    }
}

fn as_added((key, version): (&u8, &u64)) -> Write {
    Write {
        version: *version,
        key: *key,
        kind: EventKind::Added,
    }
}

fn input_of(write: Write) -> Input {
    Input::Event {
        kind: write.kind,
        resource_version: rv(write.version),
    }
}

/// Two rounds of faults, each followed by quiet.
fn run(seed: u64, flaw: Flaw) -> Result<World, String> {
    let mut world = World::new(seed, flaw);
    for _ in 0..2 {
        world.faults = Faults::All;
        for _ in 0..60 {
            world.step()?;
        }
        world.quiet()?;
    }
    Ok(world)
}

#[test]
fn the_held_state_is_always_the_one_at_its_version_and_the_newest_after_quiet() {
    let mut relists = [0; Reason::VARIANTS.len()];
    let mut ignored = 0;
    for seed in 0..400 {
        let world = run(seed, Flaw::None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for &reason in Reason::VARIANTS {
            relists[reason as usize] += world.reflector.counters().relists(reason);
        }
        ignored += world.reflector.counters().ignored;
    }
    // A simulation that does not reach a rule proves nothing about it.
    // Only a sink knows what an event out of order means.
    for reason in Reason::VARIANTS
        .iter()
        .copied()
        .filter(|reason| *reason != Reason::Unordered)
    {
        assert!(
            relists[reason as usize] > 0,
            "{reason:?} was not reached: {relists:?}"
        );
    }
    assert!(ignored > 0);
}

#[test]
fn cuts_errors_and_busy_answers_cause_no_relist_unless_watches_bring_nothing() {
    for seed in 0..200 {
        let check = |done: Check| done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut world = World::new(seed, Flaw::None);
        check(world.quiet());
        let before = world.relist_count();
        world.faults = Faults::Harmless;
        for _ in 0..120 {
            check(world.step().map(drop));
        }
        check(world.quiet());
        assert_eq!(world.relist_count(), before, "seed {seed}");
        assert!(world.request_count > 40, "seed {seed}");
    }
}

#[track_caller]
fn check_caught(flaw: Flaw) {
    assert!((0..100).any(|seed| run(seed, flaw).is_err()));
}

#[test]
fn a_driver_that_keeps_its_side_buffer_is_caught() {
    check_caught(Flaw::KeepsSideBuffer);
}

#[test]
fn a_driver_that_applies_repeated_events_is_caught() {
    check_caught(Flaw::AppliesIgnored);
}

#[test]
fn a_driver_that_skips_an_event_is_caught() {
    check_caught(Flaw::SkipsEvents);
}
