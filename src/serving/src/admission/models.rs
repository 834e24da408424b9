//! Loom models of a permit that is handed to a list which gives up at the same time: afterwards the permit is free, exactly once. They
//! fail if a list that gives up after its admission releases the permit in addition to the one in its channel (planted defect 38).

use std::task::Waker;

use loom::thread;

use super::*;

type Listing = Pin<Box<dyn Future<Output = Result<ListPermit, Status>>>>;

fn list(admission: &Admission) -> Listing {
    let admission = admission.clone();
    Box::pin(async move { admission.list(Peer::UNKNOWN).await })
}

/// Polls a list once; returns its permit if it has one.
fn poll_once(listing: &mut Listing) -> Option<ListPermit> {
    match listing
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(permit) => Some(permit.expect("the list is admitted or waits")),
        Poll::Pending => None,
    }
}

/// One permit that is released while the first of `waiting` lists gives up.
fn check(waiting: usize) {
    // Waiting needs a timer. It never fires, because nothing drives this runtime.
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
        let running = poll_once(&mut list(&admission)).expect("the only permit is free");
        let mut lists: Vec<_> = (0..waiting).map(|_| list(&admission)).collect();
        assert!(lists.iter_mut().all(|listing| poll_once(listing).is_none()));
        let first = lists.remove(0);
        let leaver = thread::spawn(move || drop(first));
        drop(running);
        leaver
            .join()
            .expect("the thread that drops the list does not panic");
        match lists.first_mut() {
            Some(second) => assert!(
                poll_once(second).is_some(),
                "the second list has the permit"
            ),
            None => {
                let permit = poll_once(&mut list(&admission)).expect("the permit is free");
                assert!(
                    poll_once(&mut list(&admission)).is_none(),
                    "there is only one permit"
                );
                drop(permit);
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
