//! Shows the page in the terminal: one loop of documents and keys. The terminal is restored however it ends.

use std::time::Duration;

use http::StatusCode;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::settings::TopSettings;
use crate::status::StatusDocument;

use super::client::StatusClient;
use super::error::TopError;
use super::model::TopPage;
use super::view::{self, ViewState};

/// Documents that wait to be drawn.
const DOCUMENTS_WAITING_MAX: usize = 2;
/// Keys that wait; more than anybody types while a picture is drawn.
const KEYS_WAITING_MAX: usize = 64;
/// How long the thread that reads keys takes to notice the end.
const KEY_POLL: Duration = Duration::from_millis(100);
/// First pause before another attempt to connect; it doubles up to the second one.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// The picture is old news after this time, beside the interval.
const NEWS_WAIT_MAX: Duration = Duration::from_secs(4);
/// The period of the gateway's own events.
const EVENT_PERIOD: Duration = Duration::from_secs(1);

/// A document, or why there is none, with the pause before the next attempt.
type News = Result<Box<StatusDocument>, (TopError, Duration)>;

/// Something to react to.
enum TerminalInput {
    News(News),
    Key(KeyEvent),
    Redraw,
}

struct RestoreGuard;

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the status until `q` is pressed.
pub(super) async fn show(settings: &TopSettings) -> Result<(), TopError> {
    let client = StatusClient::new(settings);
    let address = client.address();
    // It also restores the terminal after a panic.
    let mut terminal = ratatui::try_init()?;
    let _restore = RestoreGuard;
    let (news, mut documents) = mpsc::channel(DOCUMENTS_WAITING_MAX);
    let (typed, mut inputs) = mpsc::channel(KEYS_WAITING_MAX);
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(client, settings.interval, news));
    // Ends by itself soon after `inputs` is dropped.
    drop(tokio::task::spawn_blocking(move || read_keys(&typed)));
    let mut screen = TopScreen {
        state: ViewState {
            sort: settings.sort,
            color: settings.color,
            address,
            ..ViewState::default()
        },
        latest: None,
        earlier: None,
        failure: None,
        interval: settings.interval,
    };
    let mut clock = tokio::time::interval(EVENT_PERIOD);
    loop {
        screen.draw(&mut terminal)?;
        // All are cancel-safe.
        let input = tokio::select! {
            Some(news) = documents.recv() => TerminalInput::News(news),
            key = inputs.recv() => match key {
                Some(input) => input,
                // The terminal is gone.
                None => return Ok(()),
            },
            _ = clock.tick() => TerminalInput::Redraw,
        };
        if screen.apply(input) {
            return Ok(());
        }
    }
}

/// What is shown.
struct TopScreen {
    state: ViewState,
    latest: Option<(Instant, Box<StatusDocument>)>,
    earlier: Option<Box<StatusDocument>>,
    /// Why there is no news, and when it is tried again.
    failure: Option<(String, Instant)>,
    interval: Duration,
}

impl TopScreen {
    /// Returns whether the input ends the program.
    fn apply(&mut self, input: TerminalInput) -> bool {
        match input {
            TerminalInput::News(Ok(document)) => {
                self.failure = None;
                self.earlier = self.latest.take().map(|(_, earlier)| earlier);
                self.latest = Some((Instant::now(), document));
                false
            }
            TerminalInput::News(Err((error, pause))) => {
                self.failure = Some((error.to_string(), Instant::now() + pause));
                false
            }
            TerminalInput::Key(key) => self.state.press(key),
            TerminalInput::Redraw => false,
        }
    }

    fn draw(&mut self, terminal: &mut DefaultTerminal) -> Result<(), TopError> {
        let page = self.latest.as_ref().map(|(_, document)| {
            TopPage::new(
                self.earlier.as_deref(),
                document,
                self.state.sort,
                &self.state.filter,
            )
        });
        self.state.banner = self.banner();
        terminal.draw(|frame| view::draw(frame, page.as_ref(), &mut self.state))?;
        Ok(())
    }

    fn banner(&self) -> Vec<String> {
        if let Some((text, at)) = &self.failure {
            let pause = at.saturating_duration_since(Instant::now()).as_secs();
            let age = self.latest.as_ref().map(|(at, _)| at.elapsed().as_secs());
            let age = age.map_or_else(String::new, |age| format!("no news for {age} s, "));
            let attempt = match pause {
                0 => format!("{age}trying again"),
                _ => format!("{age}next attempt in {pause} s"),
            };
            return vec![attempt, text.clone()];
        }
        let age = self.latest.as_ref().map(|(at, _)| at.elapsed());
        let old = age.filter(|age| *age > self.interval + NEWS_WAIT_MAX);
        old.map(|age| format!("no news for {} s", age.as_secs()))
            .into_iter()
            .collect()
    }
}

/// Reads documents as long as somebody takes them: events, or a document each interval if that is longer than theirs or there are too many
/// viewers.
async fn follow(client: StatusClient, interval: Duration, news: mpsc::Sender<News>) {
    let mut pause = RETRY_MIN;
    let mut polls = interval > EVENT_PERIOD;
    while !news.is_closed() {
        let ended = if polls {
            poll(&client, interval, &news, &mut pause).await
        } else {
            listen(&client, &news, &mut pause).await
        };
        match ended {
            Ok(()) => {}
            Err(TopError::Refused {
                code: StatusCode::TOO_MANY_REQUESTS,
                ..
            }) if !polls => polls = true,
            Err(error) => {
                if news.send(Err((error, pause))).await.is_err() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
    }
}

async fn poll(
    client: &StatusClient,
    interval: Duration,
    news: &mpsc::Sender<News>,
    pause: &mut Duration,
) -> Result<(), TopError> {
    let document = client.document().await?;
    *pause = RETRY_MIN;
    // If nobody takes it, the caller ends.
    let _ = news.send(Ok(Box::new(document))).await;
    tokio::time::sleep(interval).await;
    Ok(())
}

async fn listen(
    client: &StatusClient,
    news: &mpsc::Sender<News>,
    pause: &mut Duration,
) -> Result<(), TopError> {
    let mut documents = client.documents().await?;
    let mut is_empty = true;
    while let Some(document) = documents.next().await? {
        (*pause, is_empty) = (RETRY_MIN, false);
        if news.send(Ok(Box::new(document))).await.is_err() {
            return Ok(());
        }
    }
    // The gateway ends the stream from time to time; one without any document is a failure.
    if is_empty {
        Err(TopError::Closed(client.address()))
    } else {
        Ok(())
    }
}

/// Sends keys, and asks for a new picture when the terminal's size has changed.
fn read_keys(inputs: &mpsc::Sender<TerminalInput>) {
    while !inputs.is_closed() {
        let input = match event::poll(KEY_POLL) {
            Ok(false) => continue,
            Ok(true) => match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => TerminalInput::Key(key),
                Ok(Event::Resize(..)) => TerminalInput::Redraw,
                Ok(
                    Event::Key(_)
                    | Event::FocusGained
                    | Event::FocusLost
                    | Event::Mouse(_)
                    | Event::Paste(_),
                ) => continue,
                Err(_) => return,
            },
            Err(_) => return,
        };
        if inputs.blocking_send(input).is_err() {
            return;
        }
    }
}
