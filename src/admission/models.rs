//! Loom models of a place that is handed to somebody who gives up at the same time: it is free for the next, and once. Fails when
//! somebody who was let in meanwhile gives the place back besides what comes through the channel (planted defect 38).

use std::task::Waker;

use loom::thread;

use super::*;

type Listing = Pin<Box<dyn Future<Output = Result<ListPermit, Status>>>>;

fn list(admission: &Admission) -> Listing {
    let admission = admission.clone();
    Box::pin(async move { admission.list(Peer::UNKNOWN).await })
}

/// What a list has after one look.
fn look(listing: &mut Listing) -> Option<ListPermit> {
    match listing
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(place) => Some(place.expect("there is a place, or it waits")),
        Poll::Pending => None,
    }
}

/// One place that is given back while the first of `waiting` lists gives up.
fn check(waiting: usize) {
    // Waiting has its time. It never passes: nobody drives this runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let _context = runtime.enter();
    loom::model(move || {
        let admission = Admission::new(
            AdmissionLimits {
                connections_max: 1,
                watches_max: 1,
                lists_max: 1,
                lists_waiting_max: 8,
                list_wait_max: Duration::from_secs(3600),
                list_stall_max: Duration::from_secs(3600),
                memory_max: 0,
            },
            None,
        );
        let running = look(&mut list(&admission)).expect("nobody else has it");
        let mut lists: Vec<_> = (0..waiting).map(|_| list(&admission)).collect();
        assert!(lists.iter_mut().all(|listing| look(listing).is_none()));
        let first = lists.remove(0);
        let leaver = thread::spawn(move || drop(first));
        drop(running);
        leaver.join().expect("it leaves");
        match lists.first_mut() {
            Some(second) => assert!(look(second).is_some(), "its turn has come"),
            None => {
                let place = look(&mut list(&admission)).expect("the place is free");
                assert!(look(&mut list(&admission)).is_none(), "there is one");
                drop(place);
            }
        }
    });
}

#[test]
fn a_place_for_a_list_that_gives_up_is_free_for_the_next() {
    check(1);
}

#[test]
fn a_place_for_a_list_that_gives_up_goes_to_the_one_behind_it() {
    check(2);
}
