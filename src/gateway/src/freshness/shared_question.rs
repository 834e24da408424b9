//! Asks one question at a time. Callers that arrive while it is being asked share the next one, so each gets an answer to a question that
//! was asked after its arrival.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The callers of one question, whose answers are of type `T`.
#[derive(Debug)]
pub(super) struct SharedQuestion<T>(Arc<Mutex<QuestionState<T>>>);

#[derive(Debug)]
struct QuestionState<T> {
    /// Callers that wait for the next question.
    waiters: Vec<oneshot::Sender<T>>,
    /// The task that asks until no caller waits.
    task: Option<JoinHandle<()>>,
}

impl<T> Default for SharedQuestion<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(QuestionState {
            waiters: Vec::new(),
            task: None,
        })))
    }
}

impl<T: Clone + Send + 'static> SharedQuestion<T> {
    /// The answer to the next question; `None` if the task that asks it panicked. A question that is being asked continues when its callers
    /// leave; one whose callers have all left is not asked. If a task is running, it goes on with its own `ask`: all callers must ask the
    /// same.
    pub(super) async fn answer<F>(&self, ask: impl FnMut() -> F + Send + 'static) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.0.lock();
            state.waiters.push(sender);
            // A task that panicked has dropped its callers' senders; it is replaced.
            if state.task.as_ref().is_none_or(JoinHandle::is_finished) {
                let task = ask_while_wanted(Arc::clone(&self.0), ask);
                state.task = Some(tokio::spawn(task));
            }
        }
        answer.await.ok()
    }
}

async fn ask_while_wanted<T: Clone, F: Future<Output = T>>(
    state: Arc<Mutex<QuestionState<T>>>,
    mut ask: impl FnMut() -> F,
) {
    while let Some(waiters) = take_waiters(&state) {
        let answer = ask().await;
        for sender in waiters {
            // A caller that has left needs no answer.
            let _ = sender.send(answer.clone());
        }
    }
}

fn take_waiters<T>(state: &Mutex<QuestionState<T>>) -> Option<Vec<oneshot::Sender<T>>> {
    let mut state = state.lock();
    state.waiters.retain(|sender| !sender.is_closed());
    if state.waiters.is_empty() {
        state.task = None;
        return None;
    }
    Some(std::mem::take(&mut state.waiters))
}

#[cfg(test)]
mod tests;
