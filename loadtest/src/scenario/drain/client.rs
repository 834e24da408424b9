//! A client with one request: records what it received, how the response ended, and how its connection ended.

use crate::lister::Lister;
use crate::recorder::{Control, Recorder, now_ns};
use crate::swarm::pace::Slowness;
use crate::swarm::{Member, Next, ResponseEnd};
use crate::verify::reference::{Fingerprints, Reference};
use crate::watcher::Watcher;

#[derive(Debug)]
pub enum Request {
    Watch(Box<Watcher>),
    List(Box<Lister>),
}

#[derive(Debug)]
pub struct DrainClient {
    request: Request,
    slowness: Option<Slowness>,
    /// Whether its connection ends with its response, so that it sees the end.
    sees_close: bool,
    has_started: bool,
    end: Option<End>,
    was_closed_in_order: Option<bool>,
}

/// The end of a started response.
#[derive(Debug)]
struct End {
    /// Nanoseconds since the epoch.
    at_ns: u64,
    /// Why it is not a good end.
    failure: Option<String>,
}

impl DrainClient {
    /// A client before its request. A slow client does not read while that is ordered.
    pub fn new(request: Request, slowness: Option<Slowness>, sees_close: bool) -> Self {
        Self {
            request,
            slowness,
            sees_close,
            has_started: false,
            end: None,
            was_closed_in_order: None,
        }
    }

    /// The newest version of its events.
    pub fn last(&self) -> u64 {
        match &self.request {
            Request::Watch(watcher) => watcher.track().last(),
            Request::List(_) => 0,
        }
    }

    pub fn events(&self) -> u64 {
        match &self.request {
            Request::Watch(watcher) => watcher.track().count(),
            Request::List(_) => 0,
        }
    }

    /// When its response ended, nanoseconds since the epoch, if it has.
    pub fn ended_ns(&self) -> Option<u64> {
        self.end.as_ref().map(|end| end.at_ns)
    }

    /// Whether its response has ended, and its connection, if it sees that.
    fn is_over(&self) -> bool {
        let is_seen = |end: &End| {
            end.failure.is_some() || !self.sees_close || self.was_closed_in_order.is_some()
        };
        self.end.as_ref().is_some_and(is_seen)
    }

    /// The first error, for a gateway that was asked to end at `asked_ns`.
    pub fn fault(
        &self,
        asked_ns: u64,
        reference: &Reference,
        states: &Fingerprints,
    ) -> Option<String> {
        let Some(end) = &self.end else {
            return Some("did not end".to_owned());
        };
        if let Some(failure) = &end.failure {
            return Some(failure.clone());
        }
        if end.at_ns < asked_ns {
            return Some("ended before the gateway was asked to".to_owned());
        }
        match self.was_closed_in_order {
            None if self.sees_close => return Some("its connection was left open".to_owned()),
            Some(false) => {
                return Some("its connection was reset, or closed without closing TLS".to_owned());
            }
            None | Some(true) => {}
        }
        match &self.request {
            Request::List(list) => list.wrong().map(str::to_owned),
            Request::Watch(watcher) if watcher.track().count() == 0 => {
                Some("got no events: nothing was proven".to_owned())
            }
            Request::Watch(watcher) if watcher.expired() > 0 => Some("received 410".to_owned()),
            Request::Watch(watcher) => {
                let until = watcher.track().resume_version();
                let fault = watcher.verdict(reference, states, until);
                fault.map(|fault| fault.to_string())
            }
        }
    }

    fn member(&mut self) -> &mut dyn Member {
        match &mut self.request {
            Request::Watch(watcher) => &mut **watcher,
            Request::List(list) => &mut **list,
        }
    }
}

impl Member for DrainClient {
    fn next(&mut self, control: &Control) -> Next {
        if self.end.is_some() {
            Next::Done
        } else {
            self.member().next(control)
        }
    }

    fn response_started(&mut self) {
        self.has_started = true;
        self.member().response_started();
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        self.has_started |= status == 200;
        self.member().body(status, data, recorder);
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        self.member().response_ended(how, recorder);
        let is_good = how == ResponseEnd::Complete(200);
        if !is_good && !self.has_started {
            // It sends its request again.
            return;
        }
        let failure = match how {
            ResponseEnd::Complete(200) => None,
            ResponseEnd::Complete(status) => Some(format!("HTTP {status} at the end of a stream")),
            ResponseEnd::Broken(why) => Some(why.to_owned()),
            ResponseEnd::Left => Some("left by its client".to_owned()),
        };
        let at_ns = now_ns();
        self.end.get_or_insert(End { at_ns, failure });
    }

    fn closed(&mut self, in_order: bool) {
        if self.end.is_some() {
            self.was_closed_in_order = Some(in_order);
        }
    }

    fn progress(&self, _: &Control) -> usize {
        usize::from(self.is_over())
    }

    fn slowness(&self) -> Option<Slowness> {
        self.slowness
    }
}

#[cfg(test)]
mod tests {
    //! Which ends are good.

    use super::*;

    const LIST: &str = r#"{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"uid":"1"}}]}"#;

    /// The error of a list with this end, after the gateway was asked to end.
    fn fault(body: &str, how: ResponseEnd<'_>, closed: Option<bool>) -> Option<String> {
        let list = Lister::repeating("/p".into(), 1);
        let mut client = DrainClient::new(Request::List(Box::new(list)), None, true);
        let asked_ns = now_ns();
        let mut recorder = Recorder::default();
        client.body(200, body.as_bytes(), &mut recorder);
        client.response_ended(how, &mut recorder);
        closed.into_iter().for_each(|closed| client.closed(closed));
        assert_eq!(client.next(&Control::default()), Next::Done);
        let reference = Reference::default();
        client.fault(asked_ns, &reference, &reference.fingerprints())
    }

    #[test]
    fn an_end_is_good_if_all_came_and_the_connection_ended_in_order() {
        let whole = ResponseEnd::Complete(200);
        assert_eq!(fault(LIST, whole, Some(true)), None);
        for (body, how, closed, expected) in [
            (LIST, whole, None, "left open"),
            (LIST, whole, Some(false), "was reset"),
            (LIST, ResponseEnd::Broken("cut"), None, "cut"),
            (&LIST[..40], whole, Some(true), "without its end"),
        ] {
            let fault = fault(body, how, closed).unwrap();
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn a_refused_client_sends_its_request_again() {
        let list = Lister::repeating("/p".into(), 1);
        let mut client = DrainClient::new(Request::List(Box::new(list)), None, true);
        let mut recorder = Recorder::default();
        client.response_ended(ResponseEnd::Complete(429), &mut recorder);
        assert_eq!(client.next(&Control::default()), Next::Pause);
        assert_eq!(client.progress(&Control::default()), 0);
        let reference = Reference::default();
        let fault = client.fault(0, &reference, &reference.fingerprints());
        assert_eq!(fault.as_deref(), Some("did not end"));
    }
}
