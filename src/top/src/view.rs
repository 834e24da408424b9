//! Lays a page out in lines. It keeps what is seen: the part, how far it is scrolled, the filter. Colours repeat what marks and words say.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Clear, Paragraph};

use crate::settings::TopSort;

use super::lines::{cut, dimmed, wrapped};
use super::model::{ResourceRow, TopPage};
use super::picture;
use super::table::{client_table, table};
use super::verdict::Severity;
use super::words::{clean, fit, separated, time, width};

/// Longest filter.
const FILTER_LEN_MAX: usize = 64;
/// Terminals that are lower have no room for notes, nor for all totals.
const NOTES_HEIGHT_MIN: u16 = 16;
const NOTES_MAX: usize = 4;
/// Shown as long as there has been no document.
const HINT: &str = "
Is the admin port of the gateway forwarded?
  kubectl -n kube-fanout port-forward deploy/kube-fanout 9090
Another address: --url http://HOST:PORT";
const HELP: &str = "\
Each line of dots is the history of one resource: the oldest event on the
left, the newest on the right. Bars count clients at their place, on a
logarithmic scale; those that are up to date are at the right edge.
▼ slow: has waited for more than 5 s    ◆ slow, and may be cut soon
✕ out of the history: cut once its connection takes something

tab          resources, slow clients, cuts, top talkers
↑ ↓ pg home  scroll
s            sort by watches, slow, events, name
/            filter by resource, user, agent; escape clears
q            quit";

/// A part of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PagePart {
    #[default]
    Resources,
    Slow,
    Cuts,
    Talkers,
}

/// In their order.
const PARTS: [PagePart; 4] = [
    PagePart::Resources,
    PagePart::Slow,
    PagePart::Cuts,
    PagePart::Talkers,
];

impl PagePart {
    /// The part so many places further, around the end.
    fn after(self, places: usize) -> Self {
        PARTS[(self as usize + places) % PARTS.len()]
    }
}

/// What is seen of the page.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewState {
    pub(super) part: PagePart,
    pub(super) scroll: usize,
    pub(super) sort: TopSort,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) is_help: bool,
    /// Use colours.
    pub(super) color: bool,
    /// What is wrong with the connection, and why; empty while it is live.
    pub(super) banner: Vec<String>,
    pub(super) address: String,
}

impl ViewState {
    /// Applies a key; returns whether it ends the program.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c' | 'd'));
        }
        if self.is_typing {
            self.type_key(key.code);
            return false;
        }
        if self.is_help {
            self.is_help = false;
            return key.code == KeyCode::Char('q');
        }
        if let KeyCode::Char('q') = key.code {
            return true;
        }
        self.command(key.code);
        false
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other keys do nothing")]
    fn command(&mut self, code: KeyCode) {
        match code {
            KeyCode::Tab | KeyCode::Right => self.show(self.part.after(1)),
            KeyCode::BackTab | KeyCode::Left => self.show(self.part.after(PARTS.len() - 1)),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    TopSort::Watches => TopSort::Slow,
                    TopSort::Slow => TopSort::Events,
                    TopSort::Events => TopSort::Name,
                    TopSort::Name => TopSort::Watches,
                }
            }
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other keys do nothing")]
    fn type_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(one) if self.filter.len() < FILTER_LEN_MAX => self.filter.push(one),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        self.scroll = 0;
    }

    fn show(&mut self, part: PagePart) {
        self.part = part;
        self.scroll = 0;
    }
}

/// Draws one picture; `None` before the first document.
pub(super) fn draw(frame: &mut Frame<'_>, page: Option<&TopPage>, state: &mut ViewState) {
    let area = frame.area();
    let (columns, rows) = (usize::from(area.width), usize::from(area.height));
    let banner = banner(&state.banner, columns, state.color);
    let (mut lines, body) = match page {
        Some(page) => {
            let notes = if area.height < NOTES_HEIGHT_MIN {
                0
            } else {
                NOTES_MAX
            };
            let mut lines = head(page, columns, notes, state.color);
            lines.push(tabs(page, state, columns));
            (lines, part(page, state.part, columns, state.color))
        }
        None => (vec![Line::raw("kube-fanout")], unconnected(state)),
    };
    // The banner stands above the tabs, and the last line is for the keys.
    let banner_at = lines.len().saturating_sub(usize::from(page.is_some()));
    let room = rows.saturating_sub(lines.len() + banner.len() + 1);
    state.scroll = state.scroll.min(body.len().saturating_sub(room));
    let below = body.len().saturating_sub(state.scroll + room);
    lines.extend(body.into_iter().skip(state.scroll).take(room));
    if page.is_some() && !banner.is_empty() {
        // These numbers are old.
        lines = lines.into_iter().map(dimmed).collect();
    }
    lines.splice(banner_at..banner_at, banner);
    lines.resize(rows.saturating_sub(1), Line::default());
    lines.push(dimmed(Line::raw(foot(state, below))));
    let lines: Vec<_> = lines.into_iter().map(|line| cut(line, columns)).collect();
    frame.render_widget(Paragraph::new(Text::from(lines)), area);
    if state.is_help {
        frame.render_widget(Clear, area);
        let help: Vec<_> = HELP
            .lines()
            .map(|line| cut(Line::raw(line), columns))
            .collect();
        frame.render_widget(Paragraph::new(help), area);
    }
}

/// What is wrong with the connection, and why: in one line if there is room.
fn banner(texts: &[String], columns: usize, use_color: bool) -> Vec<Line<'static>> {
    let style = color(Severity::Bad, use_color).add_modifier(Modifier::REVERSED);
    let mark = Severity::Bad.mark();
    let whole = format!("{mark} {}", clean(&texts.join(": ")));
    let texts: Vec<String> = match texts {
        [] => Vec::new(),
        [what, why] if width(&whole) > columns => {
            vec![
                format!("{mark} {}", clean(what)),
                format!("  {}", clean(why)),
            ]
        }
        _ => vec![whole],
    };
    let line = |text: String| Line::styled(fit(&text, columns), style);
    texts.into_iter().map(line).collect()
}

fn unconnected(state: &ViewState) -> Vec<Line<'static>> {
    if state.banner.is_empty() {
        let text = format!("connecting to {} …", clean(&state.address));
        return vec![Line::raw(text)];
    }
    HINT.lines().map(Line::raw).collect()
}

/// The whole page as text, without colours.
pub(super) fn text(page: &TopPage, columns: u16) -> String {
    let columns = usize::from(columns).max(20);
    let mut lines = head(page, columns, usize::MAX, false);
    for one in PARTS {
        lines.push(Line::default());
        if one != PagePart::Resources {
            lines.push(Line::raw(title(page, one)));
        }
        lines.extend(part(page, one, columns, false));
    }
    let mut text = String::new();
    for line in lines {
        let whole: String = line
            .spans
            .iter()
            .map(|span| span.content.as_ref())
            .collect();
        text.push_str(fit(&whole, columns).trim_end());
        text.push('\n');
    }
    text
}

fn head(page: &TopPage, columns: usize, notes: usize, use_color: bool) -> Vec<Line<'static>> {
    let (severity, text) = &page.verdict;
    let style = color(*severity, use_color).add_modifier(Modifier::BOLD);
    let mut lines = vec![
        Line::raw(fit(&format!("kube-fanout {}", page.build), columns)),
        Line::styled(fit(&format!("{} {text}", severity.mark()), columns), style),
    ];
    for note in page.notes.iter().take(notes) {
        lines.push(Line::raw(fit(&format!("  {note}"), columns)));
    }
    let totals: Vec<_> = page
        .totals
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let all = wrapped(&totals, columns, "");
    // A low terminal has room for one line: the rates.
    match notes {
        0 => lines.extend(wrapped(&totals[1..2], columns, "")),
        _ => lines.extend(all),
    }
    lines
}

fn title(page: &TopPage, part: PagePart) -> String {
    match part {
        PagePart::Resources => format!(
            "Resources ({})",
            separated(page.resources.len() + page.omitted)
        ),
        PagePart::Slow => format!("Slow clients ({})", separated(page.slow_count)),
        PagePart::Cuts => format!("Cut lately ({})", separated(page.cuts.len())),
        PagePart::Talkers => format!("Top talkers, {}", time(page.talkers.seconds)),
    }
}

fn tabs(page: &TopPage, state: &ViewState, columns: usize) -> Line<'static> {
    let titles = PARTS.map(|one| title(page, one));
    let is_narrow = titles.iter().map(|title| width(title) + 3).sum::<usize>() > columns;
    let tab = |one| {
        let mut text = title(page, one);
        if is_narrow {
            // The first word and the number.
            text = text.replace(" clients", "").replace(" lately", "");
        }
        if one == state.part {
            Span::styled(
                format!("[{text}] "),
                Style::new().add_modifier(Modifier::BOLD),
            )
        } else {
            Span::raw(format!(" {text}  "))
        }
    };
    Line::from(PARTS.map(tab).to_vec())
}

fn part(page: &TopPage, part: PagePart, columns: usize, use_color: bool) -> Vec<Line<'static>> {
    match part {
        PagePart::Resources if page.resources.is_empty() => vec![Line::raw(
            "No resource: the first list or watch of one starts its cache.",
        )],
        PagePart::Resources => {
            let rows = page
                .resources
                .iter()
                .flat_map(|row| resource(row, columns, use_color));
            let more = (page.omitted > 0).then(|| {
                Line::raw(format!(
                    "{} more with fewer clients",
                    separated(page.omitted)
                ))
            });
            rows.chain(more).collect()
        }
        PagePart::Slow => slow_clients(page, columns),
        PagePart::Cuts if page.cuts.is_empty() => vec![Line::raw("None since the start.")],
        PagePart::Cuts => client_table(
            ["user", "user agent", "address", "resource", "why", "when"],
            &page.cuts,
            columns,
        ),
        PagePart::Talkers => talkers(page, columns),
    }
}

/// Those that ask for most, by user and by user agent.
fn talkers(page: &TopPage, columns: usize) -> Vec<Line<'static>> {
    let one = |title, rows| {
        table(
            [title, "watches", "requests", "lists", "bytes"],
            rows,
            columns,
        )
    };
    let mut lines = one("user", &page.talkers.users);
    lines.push(Line::default());
    lines.extend(one("user agent", &page.talkers.agents));
    lines
}

/// The groups, then the clients; each with a line before it if these are not all.
fn slow_clients(page: &TopPage, columns: usize) -> Vec<Line<'static>> {
    let note = |note: &Option<String>| note.clone().map(Line::raw);
    let mut lines = Vec::new();
    if !page.slow_groups.is_empty() {
        let titles = ["user", "user agent", "slow watches", "longest wait"];
        lines.extend(note(&page.group_note));
        lines.extend(table(titles, &page.slow_groups, columns));
    }
    if !page.slow.is_empty() {
        let titles = [
            "user",
            "user agent",
            "address",
            "resource",
            "waits for",
            "events behind",
        ];
        lines.push(Line::default());
        lines.extend(note(&page.slow_note));
        lines.extend(client_table(titles, &page.slow, columns));
    }
    if lines.is_empty() {
        lines.push(Line::raw(match page.is_filtered {
            true => "None that match the filter.",
            false => "None.",
        }));
    }
    lines
}

fn resource(row: &ResourceRow, columns: usize, use_color: bool) -> Vec<Line<'static>> {
    let style = color(row.severity, use_color);
    let mut lines = vec![Line::from(vec![
        Span::styled(
            format!("{} {}", row.severity.mark(), row.name),
            style.add_modifier(Modifier::BOLD),
        ),
        Span::styled(format!("  {}", row.state), style),
        Span::raw(format!("  {}", row.clients)),
    ])];
    lines.extend(wrapped(&row.facts, columns, "  "));
    if !row.note.is_empty() {
        lines.push(Line::raw(fit(&format!("  {}", row.note), columns)));
    }
    let cells = columns.saturating_sub(4);
    if row.columns.is_empty() || cells == 0 {
        return lines;
    }
    if !row.slow.is_empty() {
        lines.push(Line::styled(
            format!("  {}", picture::marks(&row.slow, cells)),
            style,
        ));
    }
    lines.push(Line::raw(format!(
        " ▕{}▏",
        picture::bars(&row.columns, cells)
    )));
    let (oldest, newest) = match &row.edges {
        (oldest, newest) if width(oldest) + width(newest) + 2 > cells => &row.short_edges,
        long => long,
    };
    let gap = cells.saturating_sub(width(newest)).max(1);
    lines.push(Line::styled(
        format!("  {}{newest}", fit(oldest, gap)),
        Style::new().add_modifier(Modifier::DIM),
    ));
    lines
}

fn foot(state: &ViewState, below: usize) -> String {
    if state.is_typing {
        return format!(
            "filter: {}_  (enter keeps, escape clears)",
            clean(&state.filter)
        );
    }
    let sort = match state.sort {
        TopSort::Watches => "watches",
        TopSort::Slow => "slow",
        TopSort::Events => "events",
        TopSort::Name => "name",
    };
    let mut text = "q quit · ? help".to_owned();
    if below > 0 {
        text.push_str(&format!(" · ↓ {below} more"));
    }
    text.push_str(&format!(" · tab next · s sort: {sort} · / filter"));
    if !state.filter.is_empty() {
        text.push_str(&format!(": {}", clean(&state.filter)));
    }
    text
}

fn color(severity: Severity, use_color: bool) -> Style {
    if !use_color {
        return Style::new();
    }
    Style::new().fg(match severity {
        Severity::Good => Color::Green,
        Severity::Warn => Color::Yellow,
        Severity::Bad => Color::Red,
    })
}
