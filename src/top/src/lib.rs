//! `kube-fanout top`: the status page in the terminal. It reads the document of a running gateway (docs/STATUS.md) and changes nothing there.
//!
//! `settings` are the flags. `client` reads documents, whose shape is in `status`, `error` says why it cannot; `model` turns two of them into a page of numbers and words, `verdict` says what
//! matters most, `groups` where the clients of a resource are, `picture` draws a history as characters, `view` lays the page out
//! with `table` and `lines`, and `terminal` shows it and reads keys. Text that clients chose passes `words::clean` before it is drawn.

mod client;
mod error;
mod groups;
mod lines;
mod model;
mod picture;
mod settings;
mod status;
mod table;
mod talkers;
mod terminal;
mod verdict;
mod view;
mod words;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use client::StatusClient;
pub use error::TopError;
use model::TopPage;
pub use settings::{TopSettings, TopSort};
use status::StatusDocument;

#[cfg(test)]
mod tests;

/// Width of the text of `--once` where there is no terminal.
const TEXT_WIDTH: u16 = 100;

/// Shows the status until `q` is pressed; with `once`, prints it once. Dropping the future restores the terminal.
///
/// # Errors
/// See [`TopError`]. While live, an unreachable gateway is shown and tried again instead.
pub async fn run(settings: &TopSettings, out: &mut impl Write) -> Result<(), TopError> {
    if settings.once {
        let size = ratatui::crossterm::terminal::size();
        let width = match size {
            Ok((width, _)) if io::stdout().is_terminal() && width > 0 => width,
            Ok(_) | Err(_) => TEXT_WIDTH,
        };
        let text = once(settings, width).await?;
        // A reader that closed the pipe, such as `head`, is not a failure.
        let _ = out.write_all(text.as_bytes());
        return Ok(());
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    terminal::show(settings).await
}

/// The status as plain text, in lines of at most `width` columns.
///
/// # Errors
/// See [`TopError`].
pub async fn once(settings: &TopSettings, width: u16) -> Result<String, TopError> {
    let client = StatusClient::new(settings);
    let mut document = client.document().await?;
    let mut earlier: Option<StatusDocument> = None;
    if document.totals.traffic.events_per_second.is_none() {
        // Nobody has looked lately: rates need a second document.
        tokio::time::sleep(settings.interval.min(RATE_WAIT)).await;
        let later = client.document().await?;
        earlier = Some(std::mem::replace(&mut document, later));
    }
    let page = TopPage::new(earlier.as_ref(), &document, settings.sort, "");
    Ok(view::text(&page, width))
}

/// Documents are at least 0.9 s apart.
const RATE_WAIT: Duration = Duration::from_secs(1);
