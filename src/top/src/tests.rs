//! The page made of documents, and how it looks in terminals of several sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::{Color, Modifier};
use ratatui::text::{Line, Span};

use super::groups::client_groups;
use super::lines::cut;
use super::model::{Rates, SlowMark, TopPage};
use super::picture;
use super::verdict::Severity;
use super::view::{PagePart, ViewState, draw, text};
use super::words::{bytes, clean, fit, time, width};
use crate::settings::TopSort;
use crate::status::{
    ClientStatus, CursorSummary, CutStatus, LagState, ResourceStatus, RingStatus, SlowGroup,
    StatusDocument, TalkerStatus, TalkersStatus, TrafficStatus,
};

impl CursorSummary {
    fn add_current(&mut self) {
        self.watches += 1;
        self.current += 1;
        if let Some(last) = self.columns.last_mut() {
            *last += 1;
        }
    }

    fn add_behind(&mut self, state: LagState) {
        self.watches += 1;
        match state {
            LagState::Behind => self.behind += 1,
            LagState::Slow | LagState::Endangered | LagState::Lost => self.slow += 1,
        }
        self.endangered += usize::from(state == LagState::Endangered);
        self.lost += usize::from(state == LagState::Lost);
        let half = self.columns.len() / 2;
        if let Some(column) = self.columns.get_mut(half) {
            *column += u32::from(state != LagState::Lost);
        }
    }
}

fn resource(name: &str, watches: usize, slow: usize) -> ResourceStatus {
    let mut one = ResourceStatus {
        name: name.to_owned(),
        ready: true,
        objects: 500,
        object_bytes: 512_000,
        ..ResourceStatus::default()
    };
    one.upstream.connected = true;
    one.upstream.silence_seconds = Some(0.02);
    one.ring = Some(RingStatus {
        events: 1_234,
        oldest_version: Some(17),
        newest_version: 1_251,
        oldest_age_seconds: 75.0,
    });
    one.cursors.columns = vec![0; 64];
    for _ in 0..watches - slow {
        one.cursors.add_current();
    }
    for _ in 0..slow {
        one.cursors.add_behind(LagState::Slow);
    }
    one.traffic.events_per_second = Some(200.0 * watches as f64);
    one
}

fn client(user: &str, user_agent: &str, position: f64) -> ClientStatus {
    ClientStatus {
        resource: "pods.v1".to_owned(),
        user: user.to_owned(),
        user_agent: user_agent.to_owned(),
        address: "10.0.0.7:4242".to_owned(),
        lag_events: 600,
        lag_seconds: 12.0,
        state: LagState::Slow,
        position,
    }
}

fn document() -> StatusDocument {
    let mut status = StatusDocument {
        at: 10_000,
        ..StatusDocument::default()
    };
    status.gateway.version = "0.1.0".to_owned();
    status.gateway.commit = "abc".to_owned();
    status.gateway.ready = true;
    status.gateway.uptime_seconds = 180;
    status.totals.watches = 23;
    status.totals.slow = 1;
    status.resources = vec![resource("pods.v1", 20, 1), resource("configmaps.v1", 3, 0)];
    status.slowest = vec![client(
        "system:serviceaccount:shop:crawler",
        "crawler/1.0 (linux)",
        0.5,
    )];
    status.slow_groups = vec![SlowGroup {
        user: "shop".to_owned(),
        user_agent: "crawler/1.0".to_owned(),
        watches: 1,
        lag_seconds: 12.0,
    }];
    status.cuts = vec![CutStatus {
        resource: "pods.v1".to_owned(),
        user: "bob".to_owned(),
        user_agent: "old/1".to_owned(),
        address: "10.0.0.8:1".to_owned(),
        reason: "lagged".to_owned(),
        seconds_ago: 30.0,
    }];
    status
}

fn page(status: &StatusDocument) -> TopPage {
    TopPage::new(None, status, TopSort::Watches, "")
}

/// The screen of a terminal of this size, one line for each row.
fn screen(size: (u16, u16), page: Option<&TopPage>, state: &mut ViewState) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, page, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| {
        (0..size.0)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..size.1).map(|y| row(y).trim_end().to_owned()).collect()
}

#[test]
fn rates_are_the_gateways_or_between_two_documents() {
    let traffic = |events, told| TrafficStatus {
        events,
        bytes: events * 10,
        events_per_second: told,
        ..TrafficStatus::default()
    };
    let between = |before, now| Rates::between(before, now).events;
    assert_eq!(between(None, (2_000, traffic(50, None))), None);
    assert_eq!(between(None, (2_000, traffic(50, Some(7.0)))), Some(7.0));
    let before = Some((1_000, traffic(10, None)));
    assert_eq!(between(before, (3_000, traffic(50, None))), Some(20.0));
    // Started again, and the same document twice.
    assert_eq!(between(before, (3_000, traffic(5, None))), None);
    assert_eq!(between(before, (1_000, traffic(50, None))), None);
}

#[test]
fn the_verdict_names_the_worst() {
    let mut status = document();
    assert_eq!(
        page(&status).verdict,
        (Severity::Warn, "1 client of 23 is slow.".to_owned())
    );
    status.resources[0].upstream.connected = false;
    let worse = page(&status);
    let words = "1 of 2 resources has lost upstream: clients see an old state.";
    assert_eq!(worse.verdict, (Severity::Bad, words.to_owned()));
    assert_eq!(worse.notes[0], "1 client of 23 is slow.");
    assert!(
        worse.notes[1].starts_with("No upstream watch of pods.v1"),
        "{:?}",
        worse.notes
    );
    let mut good = document();
    (good.totals.slow, good.cuts) = (0, Vec::new());
    assert_eq!(
        page(&good).verdict,
        (Severity::Good, "No client is slow.".to_owned())
    );
    // What is amber says why.
    good.cuts = document().cuts;
    let cut = "1 client was cut in the last 5 minutes.".to_owned();
    assert_eq!(page(&good).verdict, (Severity::Warn, cut.clone()));
    assert!(!page(&good).notes.contains(&cut));
    good.gateway.ready = false;
    assert!(page(&good).notes.contains(&cut));
}

#[test]
fn the_verdict_counts_one_thing_as_one() {
    let mut status = document();
    (status.totals.watches, status.resources) = (1, vec![resource("pods.v1", 1, 1)]);
    let page_of_one = page(&status);
    assert_eq!(page_of_one.verdict.1, "The only client is slow.");
    let note = "1 client was cut in the last 5 minutes.".to_owned();
    assert!(page_of_one.notes.contains(&note), "{:?}", page_of_one.notes);
    status.resources[0].upstream.connected = false;
    assert_eq!(
        page(&status).verdict.1,
        "Upstream is gone: clients see an old state."
    );
    // The document holds no more.
    status.cuts = vec![status.cuts[0].clone(); 50];
    let note = "50 clients or more were cut in the last 5 minutes.".to_owned();
    assert!(page(&status).notes.contains(&note));
    let one = &mut status.resources[0];
    one.objects = 1;
    one.traffic.events_per_second = Some(0.9);
    one.ring.as_mut().unwrap().events = 1;
    let text = text(&page(&status), 100);
    assert!(text.contains("history: 1 event, the last "), "{text}");
    assert!(text.contains(" · 1 event/s · "), "{text}");
}

#[test]
fn the_groups_of_clients_add_up() {
    let mut at = CursorSummary::default();
    assert_eq!(client_groups(&at), "0 clients");
    at.add_current();
    assert_eq!(client_groups(&at), "1 client, 1 up to date");
    at.add_current();
    assert_eq!(client_groups(&at), "2 clients, all up to date");
    at.add_current();
    at.future = 1;
    at.add_behind(LagState::Behind);
    at.initial = 1;
    at.add_behind(LagState::Slow);
    at.add_behind(LagState::Endangered);
    assert_eq!(
        client_groups(&at),
        "6 clients, 3 up to date (1 waiting for a future version), 1 less than 5 s behind, 2 slow (1 may be cut soon); \
         1 of them receiving initial events or catching up"
    );
}

#[test]
fn a_gateway_without_clients_that_is_not_ready_starts_or_fails() {
    let mut status = StatusDocument::default();
    status.gateway.failing = vec!["pods.v1: is listed".to_owned()];
    for (uptime, severity, words) in [
        (3, Severity::Warn, "The gateway is starting."),
        (600, Severity::Bad, "The gateway is not ready."),
    ] {
        status.gateway.uptime_seconds = uptime;
        let found = page(&status);
        assert_eq!(found.verdict, (severity, words.to_owned()));
        assert_eq!(found.notes, ["Not ready: pods.v1: is listed"]);
    }
}

#[test]
fn a_gateway_that_drains_says_so_first() {
    let mut status = document();
    status.gateway.draining = true;
    status.gateway.ready = false;
    let page = page(&status);
    let words = "The gateway is draining: its clients move to others.";
    assert_eq!(page.verdict, (Severity::Warn, words.to_owned()));
    assert!(page.notes[0].ends_with(" slow."), "{:?}", page.notes);
}

#[test]
fn clients_that_take_their_initial_events_are_not_up_to_date() {
    let mut status = document();
    status.resources[0].cursors.add_behind(LagState::Slow);
    status.resources[0].cursors.initial = 1;
    let page = page(&status);
    assert!(
        page.resources[0]
            .clients
            .ends_with("; 1 of them receiving initial events or catching up")
    );
    let note = "1 client is receiving initial events or catching up.".to_owned();
    assert!(page.notes.contains(&note), "{:?}", page.notes);
}

#[test]
fn clients_out_of_the_history_are_counted_and_marked() {
    let mut status = document();
    status.resources[0].cursors.add_behind(LagState::Lost);
    status.totals.slow = 150;
    status.slowest[0].state = LagState::Lost;
    let page = page(&status);
    assert_eq!(page.verdict.0, Severity::Bad);
    assert_eq!(page.resources[0].state, "1 out of the history");
    assert_eq!(
        page.verdict.1,
        "150 clients of 23 are slow: 1 out of the history."
    );
    let text = text(&page, 80);
    for words in [
        "✕ shop:crawler, 12 s",
        "✕ >12 s",
        "docs/ALERTS.md#kubefanoutclientscutforlag",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    // All of them are the same clients, and are counted once.
    status.totals.slow = 1;
    let verdict = self::page(&status).verdict.1;
    assert_eq!(verdict, "1 client of 23 is slow and out of the history.");
    // Not only those that the document names.
    assert!(text.contains("Slow clients (150)"), "{text}");
    for words in [
        "1 of 150 slow clients, the largest groups first\nuser ",
        "1 of 150 slow clients, the longest wait first\nuser ",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
}

#[test]
fn a_filter_says_among_which_slow_clients_it_looks() {
    let mut status = document();
    let filtered = |status: &StatusDocument, filter| {
        let page = TopPage::new(None, status, TopSort::Watches, filter);
        text(&page, 80)
    };
    assert!(!filtered(&status, "crawler").contains("Found among"));
    status.totals.slow = 150;
    let found = filtered(&status, "crawler");
    assert_eq!(
        found.matches("Found among 1 of 150 slow clients").count(),
        2
    );
    assert!(found.contains("Slow clients (1)"), "{found}");
    let none = filtered(&status, "nobody");
    assert!(none.contains("None that match the filter."), "{none}");
}

#[test]
fn resources_are_sorted_and_filtered() {
    let names = |sort, filter| {
        let page = TopPage::new(None, &document(), sort, filter);
        page.resources
            .into_iter()
            .map(|row| row.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(TopSort::Watches, ""), ["pods.v1", "configmaps.v1"]);
    assert_eq!(names(TopSort::Name, ""), ["configmaps.v1", "pods.v1"]);
    assert_eq!(names(TopSort::Watches, "CONFIG"), ["configmaps.v1"]);
    // By the user agent of its slow client.
    assert_eq!(names(TopSort::Watches, "crawler"), ["pods.v1"]);
}

#[test]
fn the_picture_has_the_oldest_left_and_the_newest_right() {
    let mut columns = vec![0; 64];
    (columns[0], columns[63]) = (1, 100);
    for cells in [10, 36, 64, 100] {
        let bars: Vec<char> = picture::bars(&columns, cells).chars().collect();
        assert_eq!(bars.len(), cells);
        assert_eq!(bars[cells - 1], '█');
        assert_ne!(bars[0], '·');
        assert!(bars[1..cells - 1].iter().all(|one| *one == '·'), "{bars:?}");
    }
    assert_eq!(picture::bars(&[], 3), "···");
    assert_eq!(picture::bars(&[1], 0), "");
}

#[test]
fn marks_stand_above_their_places() {
    let mark = |position, state| SlowMark {
        position,
        state,
        label: "bob, 9 s".to_owned(),
    };
    assert_eq!(
        picture::marks(&[mark(0.0, LagState::Endangered)], 20).trim_end(),
        "◆ bob, 9 s"
    );
    assert_eq!(
        picture::marks(&[mark(0.0, LagState::Lost)], 20).trim_end(),
        "✕ bob, 9 s"
    );
    assert_eq!(
        picture::marks(&[mark(1.0, LagState::Slow)], 20).trim_start(),
        "bob, 9 s ▼"
    );
    // No room for a second name.
    let both = [mark(0.0, LagState::Slow), mark(0.0, LagState::Endangered)];
    let both = picture::marks(&both, 12);
    assert!(both.starts_with("▼") || both.starts_with("◆"));
    assert_eq!(both.chars().count(), 12);
    assert_eq!(picture::marks(&[mark(0.5, LagState::Slow)], 0), "");
}

#[test]
fn names_of_clients_cannot_control_the_terminal() {
    let hostile = "\x1b[2J\x1b]0;owned\x07\r\nroot\u{202e}evil\u{200b}\u{9b}31m";
    assert!(
        clean(hostile)
            .chars()
            .all(|one| !one.is_control() && one != '\u{202e}' && one != '\u{200b}')
    );
    // Accents in heaps would cover the lines above; a few belong to the language.
    let heap = format!("z{}", "\u{301}".repeat(50));
    assert_eq!(clean(&heap).matches('\u{301}').count(), 2);
    assert_eq!(clean("Việt e\u{301} 👩"), "Việt e\u{301} 👩");
    let mut status = document();
    status.slowest = vec![client(hostile, hostile, 0.1)];
    status.slow_groups[0].user_agent = hostile.to_owned();
    status.cuts[0].user = hostile.to_owned();
    status.cuts[0].reason = hostile.to_owned();
    status.gateway.failing = vec![hostile.to_owned()];
    status.gateway.version = hostile.to_owned();
    status.resources[0].name = hostile.to_owned();
    let page = page(&status);
    let plain = text(&page, 200);
    assert!(plain.contains("root"), "{plain}");
    for part in [PagePart::Resources, PagePart::Slow, PagePart::Cuts] {
        let mut state = ViewState {
            part,
            banner: vec![hostile.to_owned(); 2],
            filter: hostile.to_owned(),
            ..ViewState::default()
        };
        let drawn = screen((120, 40), Some(&page), &mut state).join("\n");
        for text in [&plain, &drawn] {
            assert!(
                text.chars().all(|one| one == '\n' || !one.is_control()),
                "{text:?}"
            );
            assert!(!text.contains(['\u{202e}', '\u{200b}']));
        }
    }
}

#[test]
fn a_terminal_of_80_by_24_shows_verdict_picture_and_keys() {
    let page = page(&document());
    let rows = screen((80, 24), Some(&page), &mut ViewState::default());
    let all = rows.join("\n");
    assert!(rows[1].starts_with("▼ 1 client of 23 is slow."), "{all}");
    for words in [
        "pods.v1  1 slow  20 clients, 19 up to date",
        "the last 75 s",
        "▼ shop:crawler, 12 s",
        "configmaps.v1  live",
        "newest: version 1251",
        "oldest: version 17, 75 s ago",
    ] {
        assert!(all.contains(words), "{words} in\n{all}");
    }
    assert!(rows[23].starts_with("q quit"), "{all}");
}

#[test]
fn a_terminal_of_40_by_10_is_still_useful() {
    let page = page(&document());
    let mut state = ViewState::default();
    let rows = screen((40, 10), Some(&page), &mut state);
    let all = rows.join("\n");
    assert!(
        rows[1].contains("is slow") && all.contains("pods.v1"),
        "{all}"
    );
    assert!(rows[9].starts_with("q quit"), "{all}");
    // Scrolling ends at the last line.
    state.scroll = 1_000;
    let all = screen((40, 10), Some(&page), &mut state).join("\n");
    assert!(
        all.contains("75 s ago") && all.contains("now: 1251"),
        "{all}"
    );
    state.part = PagePart::Slow;
    let all = screen((40, 10), Some(&page), &mut state).join("\n");
    assert!(
        all.contains("[Slow (1)]") && all.contains("Cut (1)"),
        "{all}"
    );
    assert!(
        all.contains("▼ 12 s") && all.contains("system:servic"),
        "{all}"
    );
    for size in [(1, 1), (2, 3), (5, 2)] {
        screen(size, Some(&page), &mut ViewState::default());
    }
}

#[test]
fn keys_choose_what_is_seen() {
    let mut state = ViewState::default();
    let mut press = |code| state.press(KeyEvent::from(code));
    for code in [
        KeyCode::Tab,
        KeyCode::Char('s'),
        KeyCode::Char('/'),
        KeyCode::Char('q'),
        KeyCode::Enter,
    ] {
        assert!(!press(code), "{code:?}");
    }
    assert!(press(KeyCode::Char('q')));
    assert_eq!(
        (state.part, state.sort, state.filter.as_str()),
        (PagePart::Slow, TopSort::Slow, "q")
    );
}

#[test]
fn without_colour_nothing_is_coloured_and_without_a_document_it_connects() {
    let page = page(&document());
    for (color, expected) in [(false, false), (true, true)] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut state = ViewState {
            color,
            ..ViewState::default()
        };
        terminal
            .draw(|frame| draw(frame, Some(&page), &mut state))
            .unwrap();
        let is_coloured = terminal
            .backend()
            .buffer()
            .content
            .iter()
            .any(|cell| cell.fg != Color::Reset);
        assert_eq!(is_coloured, expected);
    }
    let mut state = ViewState {
        address: "127.0.0.1:9090".to_owned(),
        ..ViewState::default()
    };
    assert!(screen((80, 24), None, &mut state)[1].contains("connecting to 127.0.0.1:9090"));
    state.banner = vec!["cannot connect".to_owned()];
    let rows = screen((80, 24), None, &mut state);
    assert!(rows[1].contains("◆ cannot connect"));
    assert!(rows.join("\n").contains("port-forward"), "{rows:?}");
}

#[test]
fn a_line_that_is_too_long_ends_with_an_ellipsis() {
    let line = || Line::from(vec![Span::raw("abcd"), Span::raw("ef")]);
    let cut_to = |columns| cut(line(), columns).to_string();
    assert_eq!(
        [0, 1, 4, 5, 6].map(cut_to),
        ["", "…", "abc…", "abcd…", "abcdef"]
    );
    let mut status = document();
    status.resources[0].name = "horizontalpodautoscalers.v2.autoscaling".to_owned();
    status.slowest.clear();
    let reason = "127.0.0.1:9090 closed the connection before it sent its status";
    let mut state = ViewState {
        banner: vec![
            "no news for 12 s, next attempt in 3 s".to_owned(),
            reason.to_owned(),
        ],
        ..ViewState::default()
    };
    let rows = screen((60, 24), Some(&page(&status)), &mut state);
    let begins = |words: &str| rows.iter().find(|row| row.starts_with(words)).cloned();
    let found = begins("▼ horizontalpodautoscalers").unwrap();
    assert!(found.ends_with('…'), "{rows:?}");
    let at = rows.iter().position(|row| row.starts_with("◆ no news"));
    let at = at.unwrap();
    assert_eq!(rows[at], "◆ no news for 12 s, next attempt in 3 s");
    let why = rows[at + 1].strip_prefix("  127.0.0.1:9090 closed the");
    assert!(why.is_some_and(|why| why.ends_with('…')), "{rows:?}");
    // One line where there is room.
    let rows = screen((120, 24), Some(&page(&status)), &mut state);
    let whole = format!("◆ no news for 12 s, next attempt in 3 s: {reason}");
    assert!(rows.contains(&whole), "{rows:?}");
}

#[test]
fn old_numbers_are_dimmed_and_without_colours() {
    let page = page(&document());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut state = ViewState {
        color: true,
        banner: vec!["cannot connect".to_owned()],
        ..ViewState::default()
    };
    terminal
        .draw(|frame| draw(frame, Some(&page), &mut state))
        .unwrap();
    let cells = &terminal.backend().buffer().content;
    let (banner, others): (Vec<_>, Vec<_>) = cells
        .iter()
        .filter(|cell| cell.symbol() != " ")
        .partition(|cell| cell.modifier.contains(Modifier::REVERSED));
    let banner: String = banner.iter().map(|cell| cell.symbol()).collect();
    assert_eq!(banner, "◆cannotconnect");
    assert!(others.len() > 200);
    for cell in others {
        assert_eq!((cell.fg, cell.modifier), (Color::Reset, Modifier::DIM));
    }
}

#[test]
fn text_fits_and_numbers_read_well() {
    assert_eq!(fit("abcdef", 4), "abc…");
    assert_eq!(fit("ab", 4), "ab  ");
    assert_eq!(width(&fit("日本語日本語", 5)), 5);
    assert_eq!(
        (bytes(1_234_567.0), time(75.0)),
        ("1.2 MB".to_owned(), "75 s".to_owned())
    );
    for line in text(&page(&document()), 60).lines() {
        assert!(width(line) <= 60, "{line}");
    }
}

#[test]
fn only_a_resource_that_somebody_must_look_at_is_bad() {
    let state = |ready, harmless| {
        let one = ResourceStatus {
            ready,
            harmless,
            ..resource("pods.v1", 1, 0)
        };
        let document = StatusDocument {
            resources: vec![one],
            ..document()
        };
        page(&document).resources[0].severity
    };
    assert_eq!(state(true, false), Severity::Good);
    assert_eq!(state(false, true), Severity::Warn);
    assert_eq!(state(false, false), Severity::Bad);
}

#[test]
fn top_talkers_are_named_with_what_they_asked_for_and_got() {
    let mut status = document();
    let talker = |name: &str, bytes| TalkerStatus {
        name: name.to_owned(),
        watches: 3,
        requests: 12_345,
        lists: 7,
        bytes,
    };
    status.talkers = TalkersStatus {
        seconds: 840.0,
        users: vec![talker("", 10), talker("jane", 2_000_000)],
        agents: vec![talker("kubectl\u{1b}[2J", 1)],
    };
    let shown = text(&page(&status), 100);
    let lines: Vec<_> = shown.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.starts_with("Top talkers, 14 min"));
    let rows = &lines[at.unwrap()..];
    let cells = |row: &str| {
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(cells(rows[2]), ["jane", "3", "12,345", "7", "2.0", "MB"]);
    assert_eq!(cells(rows[3]), ["–", "3", "12,345", "7", "10", "B"]);
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let filtered = TopPage::new(None, &status, TopSort::Watches, "JANE");
    assert_eq!(
        (filtered.talkers.users.len(), filtered.talkers.agents.len()),
        (1, 0)
    );
}

#[test]
fn totals_say_what_was_forwarded_and_refused_and_how_much_memory_there_is() {
    let mut status = document();
    status.totals.forwarded.requests = 4_321;
    status.totals.forwarded.requests_per_second = Some(17.2);
    status.totals.refused = 3;
    status.totals.memory.resident = 512_000_000;
    status.totals.memory.limit = Some(1_000_000_000);
    let shown = text(&page(&status), 200);
    for part in [
        "forwarded: 4,321, 17/s",
        "refused: 3",
        "memory: 512 MB of 1.0 GB",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn what_a_shadow_has_found_is_shown_while_there_is_one() {
    let mut status = document();
    assert!(!text(&page(&status), 200).contains("shadow"));
    let json = r#"{"watches": 2, "equal": 1234, "missing": 3, "extra": 0, "content": 1, "status": 0, "notComparable": 17}"#;
    status.totals.shadow = Some(serde_json::from_str(json).unwrap());
    let shown = text(&page(&status), 200);
    let found = "shadow: 3 missing, 1 content, 1,234 equal, 17 not comparable";
    assert!(shown.contains(found), "{shown}");
    let none =
        r#"{"equal": 5, "missing": 0, "extra": 0, "content": 0, "status": 0, "notComparable": 0}"#;
    status.totals.shadow = Some(serde_json::from_str(none).unwrap());
    let shown = text(&page(&status), 200);
    assert!(shown.contains("shadow: no differences, 5 equal"), "{shown}");
}
