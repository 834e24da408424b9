//! A client that lists again and again, whatever the server answers; after a refusal it waits.

use std::sync::Arc;

use super::{ListClient, Lister};
use crate::recorder::{Control, Recorder};
use crate::swarm::{Member, Next, ResponseEnd, TOO_MANY};

/// End of a complete list.
pub const LIST_COMPLETE: &str = "list complete";

#[derive(Debug)]
pub struct RepeatLister {
    path: Arc<str>,
    lister: Lister,
    items_min: u64,
    pause_due: bool,
    wrong: Option<String>,
}

impl RepeatLister {
    /// A client whose lists must have at least this many objects.
    pub fn new(path: Arc<str>, items_min: u64) -> Self {
        Self {
            lister: Lister::new(path.clone()),
            path,
            items_min,
            pause_due: false,
            wrong: None,
        }
    }

    /// The first list that looked complete and was not. A list that breaks off does not count: the client notices that.
    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }
}

impl Member for RepeatLister {
    fn next(&mut self, _: &Control) -> Next {
        if std::mem::take(&mut self.pause_due) {
            Next::Pause
        } else {
            Next::Send(self.path.to_string())
        }
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        if status == 200 {
            self.lister.body(status, data, recorder);
        } else if status != TOO_MANY {
            recorder.refusal(status, data);
        }
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        self.lister.response_ended(how, recorder);
        let fresh = Lister::new(self.path.clone());
        let listed = std::mem::replace(&mut self.lister, fresh)
            .into_lists()
            .pop();
        self.pause_due = how != ResponseEnd::Complete(200);
        match how {
            ResponseEnd::Complete(200) => {
                recorder.end(LIST_COMPLETE);
                let listed = listed.unwrap_or_default();
                let few = listed.items < self.items_min;
                let short = few.then(|| format!("a list of {} objects", listed.items));
                if let Some(why) = listed.failure.or(short) {
                    self.wrong.get_or_insert(why);
                }
            }
            // Counted where the head of the response is known.
            ResponseEnd::Complete(TOO_MANY) => {}
            ResponseEnd::Complete(status) => recorder.end(&format!("HTTP {status}")),
            ResponseEnd::Broken(_) | ResponseEnd::Left => {}
        }
    }

    fn progress(&self, _: &Control) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    //! A refused client waits, a broken list does not count, a short one is a fault.

    use super::*;
    use crate::swarm::ResponseEnd;

    #[track_caller]
    fn check(body: &str, how: ResponseEnd<'_>, next: Next, wrong: Option<&str>) {
        let (control, mut recorder) = (Control::default(), Recorder::default());
        let mut client = RepeatLister::new("/p".into(), 1);
        let status = match how {
            ResponseEnd::Complete(status) => status,
            ResponseEnd::Broken(_) | ResponseEnd::Left => 200,
        };
        client.body(status, body.as_bytes(), &mut recorder);
        client.response_ended(how, &mut recorder);
        assert_eq!(client.next(&control), next);
        assert_eq!(client.wrong(), wrong);
    }

    #[test]
    fn responses_decide_the_next_request() {
        let again = || Next::Send("/p".to_owned());
        let whole = r#"{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"uid":"1"}}]}"#;
        check(whole, ResponseEnd::Complete(200), again(), None);
        let cut = "a list without its end";
        check(&whole[..30], ResponseEnd::Complete(200), again(), Some(cut));
        let empty = r#"{"metadata":{"resourceVersion":"3"},"items":[]}"#;
        check(
            empty,
            ResponseEnd::Complete(200),
            again(),
            Some("a list of 0 objects"),
        );
        check("{}", ResponseEnd::Complete(429), Next::Pause, None);
        check(
            &whole[..30],
            ResponseEnd::Broken("reset"),
            Next::Pause,
            None,
        );
    }
}
