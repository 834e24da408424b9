//! How often tokens are reviewed, and how long verdicts are cached.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::super::review_permits;
use super::*;
use crate::metrics::Metrics;

/// An authenticator that returns scripted verdicts in order, each after a permit of `gate` if there is one.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<TokenVerdict>>,
    purposes: Mutex<Vec<ReviewPurpose>>,
    gate: Option<Semaphore>,
}

impl TokenAuthenticator for Script {
    fn authenticate<'a>(
        &'a self,
        _token: &'a BearerToken,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        self.purposes.lock().push(purpose);
        let answer = self.answers.lock().pop_front().unwrap();
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            assert_ne!(answer, Err(scripted_panic()), "a scripted panic");
            answer
        })
    }
}

impl Script {
    /// The number of reviews so far.
    fn asked(&self) -> usize {
        self.purposes.lock().len()
    }
}

/// A verdict that makes the script panic.
fn scripted_panic() -> ReviewError {
    unavailable("panic")
}

struct Fixture {
    script: Arc<Script>,
    cache: Arc<TokenCache>,
    start: Instant,
    /// Seconds by which the wall clock was set forward.
    jumped: Arc<AtomicI64>,
}

/// A cache under tokio's paused clock. The wall clock starts at 1,000,000 s since 1970 and advances with it.
fn fixture(answers: &[TokenVerdict], gate: Option<Semaphore>) -> Fixture {
    let script = Arc::new(Script {
        answers: Mutex::new(answers.iter().cloned().collect()),
        gate,
        ..Script::default()
    });
    let start = Instant::now();
    let jumped = Arc::new(AtomicI64::new(0));
    let jumps = Arc::clone(&jumped);
    let cache = TokenCache::new(
        Arc::clone(&script) as Arc<dyn TokenAuthenticator>,
        Arc::new(move || {
            let seconds = 1_000_000 + jumps.load(Ordering::Relaxed);
            let base = Duration::from_secs(seconds.try_into().unwrap());
            SystemTime::UNIX_EPOCH + base + start.elapsed()
        }),
        Metrics::new().unwrap().authentication(),
    );
    Fixture {
        script,
        cache: Arc::new(cache.unwrap()),
        start,
        jumped,
    }
}

fn user(name: &str) -> TokenVerdict {
    Ok(Some(Arc::new(User {
        name: name.to_owned(),
        ..User::default()
    })))
}

fn token(secret: &str) -> BearerToken {
    BearerToken::new(secret).unwrap()
}

/// A JWT that expires at `exp`, in seconds since 1970.
fn expiring(exp: i64) -> BearerToken {
    use base64::Engine as _;
    let claims = format!(r#"{{"exp":{exp}}}"#);
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims);
    token(&format!("h.{claims}.s"))
}

async fn advance(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn good_tokens_are_remembered_for_two_minutes_and_bad_ones_for_ten_seconds() {
    let rows = [
        (user("alice"), 120),
        (Ok(None), 10),
        (Err(ReviewError::SelfReviewForbidden), 10),
    ];
    for (verdict, seconds) in rows {
        let Fixture { script, cache, .. } = fixture(&[verdict.clone(), user("bob")], None);
        assert_eq!(
            cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
            verdict
        );
        advance(seconds - 1).await;
        assert_eq!(
            cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
            verdict
        );
        assert_eq!(script.asked(), 1);
        advance(1).await;
        assert_eq!(
            cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
            user("bob")
        );
        assert_eq!(script.asked(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn no_token_is_remembered_beyond_its_own_end_or_longer_than_others() {
    for (exp, seconds) in [(1_000_030, 30), (1_003_600, 120)] {
        let token = expiring(exp);
        let Fixture { script, cache, .. } = fixture(&[user("alice"), Ok(None)], None);
        assert_eq!(
            cache.user(&token, Peer::UNKNOWN).await.verdict,
            user("alice")
        );
        advance(seconds - 1).await;
        assert_eq!(
            cache.user(&token, Peer::UNKNOWN).await.verdict,
            user("alice")
        );
        advance(1).await;
        assert_eq!(cache.user(&token, Peer::UNKNOWN).await.verdict, Ok(None));
        assert_eq!(script.asked(), 2);
    }
}

/// Each row: when the token expires, how far the clock is off when the token is reviewed and afterwards, and how many seconds the
/// verdict is cached.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_keeps_no_answer_longer_than_two_minutes() {
    const HOUR: i64 = 3600;
    for (exp, before, after, seconds) in [
        // The time that remains when the verdict is stored is counted by the monotonic clock.
        (1_000_030, 0, HOUR, 30),
        (1_000_030, 0, -HOUR, 30),
        // The wall clock is wrong when the verdict is stored: by it, the token expires in about an hour, or has expired.
        (1_000_030, -HOUR, 0, 120),
        (1_000_030, -HOUR, HOUR, 120),
        (1_000_030, HOUR, 0, 0),
        (1_000_030, HOUR, -HOUR, 0),
        (1_000_000 + 2 * HOUR, HOUR, 0, 120),
    ] {
        let row = format!("{exp} {before} {after}");
        let Fixture {
            script,
            cache,
            jumped,
            ..
        } = fixture(&[user("alice"), Ok(None)], None);
        jumped.store(before, Ordering::Relaxed);
        let token = expiring(exp);
        let verdict = async || cache.user(&token, Peer::UNKNOWN).await.verdict;
        assert_eq!(verdict().await, user("alice"));
        jumped.store(after, Ordering::Relaxed);
        if seconds > 0 {
            advance(seconds - 1).await;
            assert_eq!(verdict().await, user("alice"), "{row}");
            advance(1).await;
        }
        assert_eq!(verdict().await, Ok(None), "{row}");
        assert_eq!(script.asked(), 2, "{row}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_has_ended_already_is_not_remembered() {
    let token = expiring(5);
    let Fixture { script, cache, .. } = fixture(&[user("alice"), user("alice")], None);
    cache.user(&token, Peer::UNKNOWN).await.verdict.unwrap();
    cache.user(&token, Peer::UNKNOWN).await.verdict.unwrap();
    assert_eq!(script.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn failures_are_not_remembered() {
    let failures = [
        unavailable("down"),
        ReviewError::Unauthorized,
        ReviewError::Malformed {
            reason: String::new(),
        },
    ];
    for failure in failures {
        let Fixture { script, cache, .. } = fixture(&[Err(failure.clone()), user("alice")], None);
        assert_eq!(
            cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
            Err(failure)
        );
        assert_eq!(
            cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
            user("alice")
        );
        assert_eq!(script.asked(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn each_token_has_its_own_answer() {
    let Fixture { cache, .. } = fixture(&[user("alice"), Ok(None), user("bob")], None);
    assert_eq!(
        cache.user(&token("a"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    assert_eq!(
        cache.user(&token("ab"), Peer::UNKNOWN).await.verdict,
        Ok(None)
    );
    assert_eq!(
        cache.user(&token("A"), Peer::UNKNOWN).await.verdict,
        user("bob")
    );
    assert_eq!(
        cache.user(&token("a"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_wait_for_one_review() {
    let Fixture { script, cache, .. } = fixture(&[user("alice")], Some(Semaphore::new(0)));
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move { cache.user(&token("t"), Peer::UNKNOWN).await.verdict })
        })
        .collect();
    while script.asked() == 0 {
        tokio::task::yield_now().await;
    }
    // Any second review would be sent before the first one is answered.
    tokio::time::sleep(Duration::from_secs(1)).await;
    script.gate.as_ref().unwrap().add_permits(1);
    for verdict in waiting {
        assert_eq!(verdict.await.unwrap(), user("alice"));
    }
    assert_eq!(script.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_review_continues_after_its_caller_left() {
    let Fixture { script, cache, .. } = fixture(&[user("alice")], Some(Semaphore::new(0)));
    let cancelled = tokio::time::timeout(Duration::from_secs(1), async {
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict
    });
    assert!(cancelled.await.is_err());
    script.gate.as_ref().unwrap().add_permits(1);
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    assert_eq!(script.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_review_without_end_is_given_up() {
    let Fixture { cache, start, .. } =
        fixture(&[user("alice"), user("bob")], Some(Semaphore::new(0)));
    let refused = cache.user(&token("t"), Peer::UNKNOWN).await.verdict;
    assert_eq!(refused, Err(unavailable("the review timed out")));
    assert_eq!(start.elapsed(), REVIEW_TIMEOUT);
    // The flight was removed.
    assert!(cache.flights.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_review_that_panics_keeps_no_place() {
    let Fixture { cache, .. } = fixture(&[Err(scripted_panic()), user("alice")], None);
    let refused = cache.user(&token("t"), Peer::UNKNOWN).await.verdict;
    assert_eq!(refused, Err(unavailable("the review was aborted")));
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
}

#[tokio::test(start_paused = true)]
async fn asking_afresh_passes_over_what_is_remembered_and_replaces_it() {
    let Fixture { script, cache, .. } = fixture(&[user("alice"), Ok(None), user("alice")], None);
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    advance(1).await;
    assert_eq!(cache.recheck(&token("t")).await.verdict, Ok(None));
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        Ok(None)
    );
    advance(1).await;
    assert_eq!(cache.recheck(&token("t")).await.verdict, user("alice"));
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    let purposes = script.purposes.lock().clone();
    let expected = [
        ReviewPurpose::Authentication,
        ReviewPurpose::Recheck,
        ReviewPurpose::Recheck,
    ];
    assert_eq!(purposes, expected);
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_that_comes_late_does_not_replace_a_newer_one() {
    let Fixture { script, cache, .. } =
        fixture(&[user("alice"), Ok(None)], Some(Semaphore::new(0)));
    let early = {
        let cache = Arc::clone(&cache);
        tokio::spawn(async move { cache.user(&token("t"), Peer::UNKNOWN).await.verdict })
    };
    tokio::task::yield_now().await;
    advance(1).await;
    let late = {
        let cache = Arc::clone(&cache);
        tokio::spawn(async move { cache.recheck(&token("t")).await.verdict })
    };
    while script.asked() < 2 {
        tokio::task::yield_now().await;
    }
    // Both reviews are answered now, the early one with a verdict that is outdated.
    script.gate.as_ref().unwrap().add_permits(2);
    assert_eq!(early.await.unwrap(), user("alice"));
    assert_eq!(late.await.unwrap(), Ok(None));
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        Ok(None)
    );
    assert_eq!(script.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_later_question_wins_whichever_is_answered_first() {
    let (good, bad) = (user("alice"), Ok(None));
    for (later, earlier) in [(&good, &bad), (&bad, &good), (&good, &user("bob"))] {
        let Fixture { cache, start, .. } = fixture(&[], None);
        let (token, digest) = (token("t"), cache.shared.hasher.token(&token("t")));
        for (verdict, asked_at) in [(later, start + Duration::from_secs(1)), (earlier, start)] {
            let verdict = verdict.clone();
            let dated = DatedVerdict { verdict, asked_at };
            cache.shared.store(digest, &token, dated).await;
        }
        assert_eq!(cache.user(&token, Peer::UNKNOWN).await.verdict, *later);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_as_old_as_its_question() {
    let answers = [user("alice"), Ok(None)];
    let Fixture { script, cache, .. } = fixture(&answers, Some(Semaphore::new(0)));
    let opening = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        script.gate.as_ref().unwrap().add_permits(2);
    };
    let (verdict, ()) = tokio::join!(
        async { cache.user(&token("t"), Peer::UNKNOWN).await.verdict },
        opening
    );
    assert_eq!(verdict, user("alice"));
    advance(99).await;
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    advance(1).await;
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        Ok(None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_token_counts_no_longer() {
    let Fixture { script, cache, .. } = fixture(&[user("alice"), user("alice")], None);
    cache
        .user(&token("t"), Peer::UNKNOWN)
        .await
        .verdict
        .unwrap();
    advance(1).await;
    cache.forget(&token("t")).await;
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        Ok(None)
    );
    advance(10).await;
    assert_eq!(
        cache.user(&token("t"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    assert_eq!(script.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_tokens_is_bounded_and_pushes_out_no_good_one() {
    let mut answers = vec![user("alice")];
    answers.extend((0..FLOOD).map(|_| Ok(None)));
    let Fixture { script, cache, .. } = fixture(&answers, Some(Semaphore::new(1)));
    assert_eq!(
        cache.user(&token("good"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    let flood = flood(&cache, peer(1), FLOOD + 1);
    assert!(flood[..FLOOD].iter().all(Result::is_ok));
    let refused = flood[FLOOD].as_ref().err().cloned();
    assert_eq!(refused, Some(ReviewError::Busy));
    assert_eq!(
        cache.user(&token("good"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    script.gate.as_ref().unwrap().add_permits(FLOOD);
    for receiver in flood.into_iter().flatten() {
        receiver.outcome().await.unwrap().verdict.unwrap();
    }
    assert_eq!(
        cache.user(&token("good"), Peer::UNKNOWN).await.verdict,
        user("alice")
    );
    assert!(cache.flights.is_empty());
    // Invalid tokens have a cache of their own.
    cache.shared.good.run_pending_tasks().await;
    assert_eq!(cache.shared.good.entry_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_from_one_address_leaves_places_and_a_line_to_others() {
    let mut answers = vec![Ok(None); REVIEWS_OF_ONE];
    answers.extend([user("bob"), user("operator")]);
    let Fixture { script, cache, .. } = fixture(&answers, Some(Semaphore::new(0)));
    // A single address gets all permits and the whole queue, except those that stay free for others.
    let flood = flood(&cache, peer(1), FLOOD + 100);
    assert_eq!(flood.iter().filter(|one| one.is_ok()).count(), FLOOD);
    while script.asked() < REVIEWS_OF_ONE {
        tokio::task::yield_now().await;
    }
    let ask = |secret, peer| {
        let cache = Arc::clone(&cache);
        tokio::spawn(async move { cache.user(&token(secret), peer).await.verdict })
    };
    let bob = ask("bob", peer(2));
    while script.asked() == REVIEWS_OF_ONE {
        tokio::task::yield_now().await;
    }
    let operator = ask("operator", peer(1).operator());
    while script.asked() == REVIEWS_OF_ONE + 1 {
        tokio::task::yield_now().await;
    }
    // Both reviews are in flight although none of the flood has ended.
    assert_eq!(script.gate.as_ref().unwrap().available_permits(), 0);
    script
        .gate
        .as_ref()
        .unwrap()
        .add_permits(REVIEWS_OF_ONE + 2);
    script.answers.lock().extend(vec![Ok(None); FLOOD]);
    assert_eq!(bob.await.unwrap(), user("bob"));
    assert_eq!(operator.await.unwrap(), user("operator"));
}

/// A herd after a restart: the last tokens get their permits late, and a review of their own takes its time.
#[tokio::test(start_paused = true)]
async fn a_token_that_waited_long_for_its_review_has_all_the_time_of_a_review() {
    let mut answers = vec![Ok(None); REVIEWS_OF_ONE];
    answers.push(user("late"));
    let Fixture { script, cache, .. } = fixture(&answers, Some(Semaphore::new(0)));
    let _herd = flood(&cache, peer(1), REVIEWS_OF_ONE);
    let late = tokio::spawn({
        let cache = Arc::clone(&cache);
        async move { cache.user(&token("late"), peer(1)).await.verdict }
    });
    while script.asked() < REVIEWS_OF_ONE {
        tokio::task::yield_now().await;
    }
    advance(29).await;
    let gate = script.gate.as_ref().unwrap();
    gate.add_permits(REVIEWS_OF_ONE);
    while script.asked() == REVIEWS_OF_ONE {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    gate.add_permits(1);
    assert_eq!(late.await.unwrap(), user("late"));
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_turn_never_comes_is_told_to_come_again() {
    let answers = vec![Ok(None); REVIEWS_OF_ONE];
    let Fixture { cache, start, .. } = fixture(&answers, Some(Semaphore::new(0)));
    // Permits that no review gives back.
    let _held: Vec<_> = (0..REVIEWS_OF_ONE)
        .map(|_| cache.shared.permits.request(peer(1)).unwrap())
        .collect();
    let late = cache.user(&token("late"), peer(1)).await.verdict;
    assert_eq!(late, Err(ReviewError::Busy));
    assert_eq!(start.elapsed(), review_permits::WAIT_MAX);
}

/// Maximum number of reviews in flight of a single address.
const REVIEWS_OF_ONE: usize = 64;
/// Maximum number of reviews of a single address, in flight and waiting.
const FLOOD: usize = REVIEWS_OF_ONE + 52_429;

fn peer(number: u8) -> Peer {
    Peer::from(std::net::IpAddr::from([10, 0, 0, number]))
}

fn flood(
    cache: &TokenCache,
    peer: Peer,
    count: usize,
) -> Vec<Result<FlightWaiter<DatedVerdict>, ReviewError>> {
    (0..count)
        .map(|number| {
            let key = FlightKey {
                digest: cache.shared.hasher.token(&token(&format!("bad-{number}"))),
                is_recheck: false,
            };
            cache.flight(key, &token("bad"), Some(peer))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_token_is_kept_or_shown() {
    let one = fixture(&[user("alice")], None).cache;
    let other = fixture(&[], None).cache;
    one.user(&token("secret"), Peer::UNKNOWN)
        .await
        .verdict
        .unwrap();
    assert_ne!(
        one.shared.hasher.token(&token("secret")),
        other.shared.hasher.token(&token("secret")),
        "each cache has a key of its own"
    );
    assert_eq!(format!("{one:?}"), "TokenCache { .. }");
}
