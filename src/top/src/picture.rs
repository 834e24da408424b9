//! The history of a resource as a line of characters: the oldest event on the left, the newest on the right, and clients where they are.

use crate::status::LagState;

use super::model::SlowMark;
use super::words::width;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A part of the history without clients.
const TRACK: char = '·';
/// Slow.
pub(super) const SLOW: char = '▼';
/// Slow, and it may be cut soon.
pub(super) const DANGER: char = '◆';
/// Out of the history.
pub(super) const LOST: char = '✕';

/// The clients in each part of the history, on a logarithmic scale.
pub(super) fn bars(columns: &[u32], cells: usize) -> String {
    let mut counts = vec![0_u64; cells];
    let last = columns.len().saturating_sub(1).max(1);
    for (at, clients) in columns.iter().enumerate() {
        // Both edges of the history are at the edges of the line.
        if let Some(cell) = counts.get_mut(at * cells.saturating_sub(1) / last) {
            *cell += u64::from(*clients);
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let bar = |clients: u64| match clients {
        0 => TRACK,
        _ if most == 1 => BARS[3],
        _ => {
            let scaled = (clients as f64).ln_1p() / (most as f64).ln_1p();
            let step = (1..BARS.len())
                .rev()
                .find(|step| scaled * 8.0 >= *step as f64 + 0.5);
            BARS[step.unwrap_or(0)]
        }
    };
    counts.into_iter().map(bar).collect()
}

/// The slow clients above their places, with names as far as there is room. Those that come first have the first choice.
pub(super) fn marks(slow: &[SlowMark], cells: usize) -> String {
    let mut line = vec![' '; cells];
    for client in slow {
        let at = place(client.position, cells);
        let mark = match client.state {
            LagState::Behind | LagState::Slow => SLOW,
            LagState::Endangered => DANGER,
            LagState::Lost => LOST,
        };
        // One cell for each character, so that the marks after it stay at their places.
        let label: String = client
            .label
            .chars()
            .map(|one| {
                if width(one.encode_utf8(&mut [0; 4])) == 1 {
                    one
                } else {
                    '?'
                }
            })
            .collect();
        let len = label.chars().count();
        let is_free = |from: usize, to: usize| {
            to <= cells
                && line[from.saturating_sub(1)..(to + 1).min(cells)]
                    .iter()
                    .all(|cell| *cell == ' ')
        };
        let (from, text) = if is_free(at, at + len + 2) {
            (at, format!("{mark} {label}"))
        } else if at > len && is_free(at - len - 1, at + 1) {
            (at - len - 1, format!("{label} {mark}"))
        } else {
            (at, mark.to_string())
        };
        let is_alone = text.chars().count() == 1;
        for (cell, one) in line.iter_mut().skip(from).zip(text.chars()) {
            if !is_alone || *cell == ' ' || *cell == SLOW {
                *cell = one;
            }
        }
    }
    line.into_iter().collect()
}

/// The cell of a position between 0 and 1.
fn place(position: f64, cells: usize) -> usize {
    let last = cells.saturating_sub(1);
    (0..last)
        .find(|cell| *cell as f64 + 0.5 > position * last as f64)
        .unwrap_or(last)
}
