//! Flights whose question is not answered in time.

use super::super::super::review_permits;
use super::*;

fn decide(
    decisions: &Arc<Decisions>,
    question: &AccessQuestion,
) -> tokio::task::JoinHandle<FlightOutcome> {
    let (decisions, question) = (Arc::clone(decisions), question.clone());
    tokio::spawn(async move { decisions.decide(&question).await })
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_was_given_up_is_asked_anew() {
    let script = Script::always(allowed());
    let decisions = decisions(&script);
    let question = question("jane", pods("a"));
    script.close();
    let first = decide(&decisions, &question);
    pass(31).await;
    assert!(first.await.unwrap().is_err());
    assert_eq!(script.asked_count(), 1);
    let _second = decide(&decisions, &question);
    pass(1).await;
    assert_eq!(script.asked_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_gets_no_place_is_refused_in_time() {
    let script = Script::always(allowed());
    let decisions = decisions(&script);
    script.close();
    let start = Instant::now();
    let waiting: Vec<_> = (0..2 * IN_FLIGHT_MAX)
        .map(|number| decide(&decisions, &question("jane", pods(&number.to_string()))))
        .collect();
    for outcome in waiting {
        assert!(outcome.await.unwrap().is_err());
    }
    assert!(start.elapsed() <= review_permits::WAIT_MAX + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_old_flight_that_ends_leaves_the_newer_one_to_be_joined() {
    let script = Script::always(allowed());
    let decisions = decisions(&script);
    let question = question("jane", pods("a"));
    script.close();
    let old = decide(&decisions, &question);
    pass(20).await;
    decisions.forget(&everything());
    let newer = decide(&decisions, &question);
    pass(11).await;
    assert!(old.await.unwrap().is_err());
    let joining = decide(&decisions, &question);
    pass(1).await;
    assert_eq!(script.asked_count(), 2);
    script.open();
    for outcome in [newer, joining] {
        assert!(outcome.await.unwrap().is_ok());
    }
}
