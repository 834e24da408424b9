//! Who shares which question.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::*;

/// Counts questions; each is answered with its number when it gets a permit, and the second one panics.
struct Upstream {
    asked: AtomicUsize,
    answers: Semaphore,
}

impl Upstream {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            asked: AtomicUsize::new(0),
            answers: Semaphore::new(0),
        })
    }

    async fn ask(self: Arc<Self>) -> usize {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.answers.acquire().await.unwrap().forget();
        assert_ne!(number, 2, "the second question panics");
        number
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Starts to wait for an answer.
async fn wait(
    question: &Arc<SharedQuestion<usize>>,
    upstream: &Arc<Upstream>,
) -> JoinHandle<Option<usize>> {
    let (question, upstream) = (Arc::clone(question), Arc::clone(upstream));
    let answer = async move { question.answer(move || Arc::clone(&upstream).ask()).await };
    let answer = tokio::spawn(answer);
    // Once for the caller, once for the task that it starts.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    answer
}

#[tokio::test]
async fn callers_share_the_next_question_and_a_panic_hangs_no_other() {
    let (question, upstream) = (Arc::default(), Upstream::new());
    let first = wait(&question, &upstream).await;
    assert_eq!(upstream.asked(), 1);
    let later = [
        wait(&question, &upstream).await,
        wait(&question, &upstream).await,
    ];
    assert_eq!(upstream.asked(), 1, "one question at a time");
    upstream.answers.add_permits(1);
    assert_eq!(first.await.unwrap(), Some(1));
    upstream.answers.add_permits(1);
    for caller in later {
        assert_eq!(caller.await.unwrap(), None);
    }
    assert_eq!(upstream.asked(), 2);
    upstream.answers.add_permits(1);
    let next = wait(&question, &upstream).await;
    assert_eq!(next.await.unwrap(), Some(3));
}

#[tokio::test]
async fn a_question_outlives_its_caller_and_one_without_callers_is_not_asked() {
    let (question, upstream) = (Arc::default(), Upstream::new());
    let first = wait(&question, &upstream).await;
    let second = wait(&question, &upstream).await;
    for caller in [first, second] {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    }
    upstream.answers.add_permits(1);
    while question.0.lock().task.is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(upstream.asked(), 1);
    assert_eq!(upstream.answers.available_permits(), 0);
}
