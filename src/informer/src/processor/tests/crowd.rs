//! Many handlers, some of which are stuck.

use super::*;

const HANDLERS: usize = 1_000;
const CHANGES: u64 = 100;
/// A bounded channel allocates memory for its whole capacity, so this is small.
const ROOM: usize = 200;

/// Distributes changes of a few objects, each after all of `others` have received the previous one.
fn churn(
    scene: &Scene,
    store: &mut Store,
    others: &[(Registration<u64>, Received)],
) -> Vec<Replay> {
    let mut replays = vec![Replay::default(); others.len()];
    for turn in 0..CHANGES {
        let name = (turn * 7 % 10).to_string();
        let deletion = (turn % 3 == 0).then(|| store.delete(&name)).flatten();
        let change = deletion.unwrap_or_else(|| store.put(&name));
        scene.processor.distribute(change);
        for (replay, (_, received)) in replays.iter_mut().zip(others) {
            replay.apply(&received.next());
        }
    }
    replays
}

#[test]
fn of_a_thousand_handlers_one_that_is_stuck_holds_up_none() {
    let scene = Scene::with_room(ROOM);
    let options = plain().with_queue(20, Overflow::Merge);
    let stuck = scene.add_gated(options, InitialState::nothing());
    let others: Vec<_> = (1..HANDLERS)
        .map(|_| scene.add(plain(), InitialState::nothing()))
        .collect();
    let mut store = Store::default();
    let replays = churn(&scene, &mut store, &others);
    assert!(replays.iter().all(|replay| replay.held == store.held));
    // The notification of the running call, and at most 20 that wait.
    assert!(stuck.registration.queue_len() <= 21);
    assert_eq!(stuck.entered.0.len(), 1);

    drop(stuck.release);
    scene.shut_down();
    assert_eq!(stuck.entered.replay().held, store.held);
}

#[test]
fn more_stuck_handlers_than_processors_hold_up_none() {
    let scene = Scene::with_room(ROOM);
    let (release, gate) = bounded::<()>(0);
    for _ in 0..50 {
        let gate = gate.clone();
        scene.add_closure(plain(), move |_| gate.recv().unwrap_or_default());
    }
    let others = [(); 10].map(|()| scene.add(plain(), InitialState::nothing()));
    let mut store = Store::default();
    let replays = churn(&scene, &mut store, &others);
    assert!(replays.iter().all(|replay| replay.held == store.held));
    drop(release);
    scene.shut_down();
}
