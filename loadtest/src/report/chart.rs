//! Charts as SVG: bars, and lines over two axes. Colours are classes `c0` … `c7` that the page defines, for light and dark.

use std::fmt::Write;

use super::axis::{Axis, AxisKind};
use super::number::short;

/// Colours that there are; a later series begins again with the first, with dashes.
pub const COLOURS: usize = 8;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Lines with more points than this have smaller ones.
const SPARSE: usize = 12;
/// Height of a bar with the gap below it.
const BAR_STEP: f64 = 24.0;
const BAR: f64 = 16.0;
/// Room for the names of bars; longer ones are cut by the middle.
const NAMES: f64 = 250.0;
const NAME_CHARS: usize = 40;
/// Room for the figure after the longest bar.
const FIGURES: f64 = 70.0;

/// A named line, in its colour.
#[derive(Debug, Clone)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// Which of the series of the page, so that one keeps its colour through all charts.
    pub number: usize,
    /// Where it goes, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// An axis of [`lines`].
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Written along it.
    pub title: &'a str,
    /// How values are spread.
    pub kind: AxisKind,
}

/// A name, a figure, and the number of its series.
pub type Bar<'a> = (&'a str, f64, usize);

/// Text for SVG and HTML, also within attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Not allowed in XML, not even escaped.
            control if control.is_control() && !matches!(control, '\n' | '\t') => {
                safe.push('\u{fffd}')
            }
            other => safe.push(other),
        }
    }
    safe
}

/// The class of a series.
pub fn class(number: usize) -> String {
    let dashed = if number >= COLOURS { " dashed" } else { "" };
    format!("c{}{dashed}", number % COLOURS)
}

/// Horizontal bars from nothing, each with its figure.
pub fn bars(title: &str, rows: &[Bar<'_>]) -> String {
    let height = rows.len() as f64 * BAR_STEP + 4.0;
    let axis = Axis::over(
        rows.iter().map(|row| row.1),
        AxisKind::Linear,
        (NAMES, WIDTH - FIGURES),
    );
    let mut svg = open(title, height);
    for (place, (name, value, number)) in rows.iter().enumerate() {
        let top = place as f64 * BAR_STEP + 4.0;
        let (middle, end) = (top + BAR / 2.0, axis.place(*value));
        let _ = write!(
            svg,
            r#"<text x="{}" y="{middle:.1}" class="name">{}</text><rect x="{NAMES}" y="{top:.1}" width="{:.1}" height="{BAR}" class="{}"><title>{}: {}</title></rect><text x="{:.1}" y="{middle:.1}" class="figure">{}</text>"#,
            NAMES - 8.0,
            escape(&cut(name)),
            (end - NAMES).max(1.0),
            class(*number),
            escape(name),
            short(*value),
            end + 6.0,
            short(*value),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Lines over two axes, each point with its values to be read by pointing at it.
pub fn lines(title: &str, x: Side<'_>, y: Side<'_>, series: &[Series]) -> String {
    let points = series.iter().flat_map(|one| &one.points);
    let across = Axis::over(
        points.clone().map(|point| point.0),
        x.kind,
        (LEFT, WIDTH - RIGHT),
    );
    let up = Axis::over(points.map(|point| point.1), y.kind, (HEIGHT - BOTTOM, TOP));
    let mut svg = open(title, HEIGHT);
    grid(&mut svg, &across, &up);
    let _ = write!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" class="axis">{}</text><text x="14" y="{:.1}" class="axis" transform="rotate(-90 14 {:.1})">{}</text>"#,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 6.0,
        escape(x.title),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(y.title),
    );
    for one in series {
        let class = class(one.number);
        let at: Vec<(f64, f64)> = one
            .points
            .iter()
            .map(|point| (across.place(point.0), up.place(point.1)))
            .collect();
        let path: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            svg,
            r#"<polyline points="{}" class="line {class}"/>"#,
            path.join(" ")
        );
        let radius = if at.len() > SPARSE { 1.5 } else { 3.0 };
        for ((x, y), point) in at.iter().zip(&one.points) {
            let _ = write!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" class="{class}"><title>{}: {} at {}</title></circle>"#,
                escape(&one.name),
                short(point.1),
                short(point.0),
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

fn open(title: &str, height: f64) -> String {
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{0}" xmlns="http://www.w3.org/2000/svg"><title>{0}</title>"#,
        escape(title)
    )
}

fn grid(svg: &mut String, across: &Axis, up: &Axis) {
    for tick in up.ticks() {
        let y = up.place(tick);
        let _ = write!(
            svg,
            r#"<line x1="{LEFT}" y1="{y:.1}" x2="{}" y2="{y:.1}" class="grid"/><text x="{}" y="{y:.1}" class="name">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 6.0,
            short(tick),
        );
    }
    for tick in across.ticks() {
        let x = across.place(tick);
        let _ = write!(
            svg,
            r#"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{}" class="grid"/><text x="{x:.1}" y="{}" class="axis">{}</text>"#,
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 16.0,
            short(tick),
        );
    }
}

/// A name that fits beside its bar: long ones differ at their ends.
fn cut(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_CHARS {
        return name.to_owned();
    }
    let half = (NAME_CHARS - 1) / 2;
    let begin: String = name.chars().take(half).collect();
    let end: String = name.chars().skip(count - half).collect();
    format!("{begin}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_html_is_escaped() {
        assert_eq!(
            escape("<script>alert(\"1\" & '2')</script>\u{7}"),
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;\u{fffd}"
        );
    }

    #[test]
    fn a_bar_is_as_long_as_its_figure() {
        let svg = bars("CPU", &[("half", 5.0, 0), ("whole", 10.0, 1)]);
        let width = |class: &str| {
            let rect = svg
                .split("<rect")
                .find(|part| part.contains(class))
                .unwrap();
            let (_, rest) = rect.split_once("width=\"").unwrap();
            rest.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        assert_eq!(width("class=\"c1\""), 2.0 * width("class=\"c0\""));
    }

    #[test]
    fn lines_pass_through_their_points_from_left_to_right() {
        let points = vec![(100.0, 1.0), (1_000.0, 1.0), (10_000.0, 1.0)];
        let series = [Series {
            name: "<a>".to_owned(),
            number: 9,
            points,
        }];
        let side = |kind| Side {
            title: "a & b",
            kind,
        };
        let svg = lines("cost", side(AxisKind::Log), side(AxisKind::Linear), &series);
        let (_, path) = svg.split_once("points=\"").unwrap();
        let path = path.split('"').next().unwrap();
        let at: Vec<f64> = path
            .split([' ', ','])
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!((at[1], at[1]), (at[3], at[5]));
        assert!((at[2] - at[0] - (at[4] - at[2])).abs() < 0.11, "{path}");
        assert!(
            svg.contains("c1 dashed") && svg.contains("a &amp; b") && svg.contains("&lt;a&gt;")
        );
    }

    #[test]
    fn charts_of_nothing_are_still_charts() {
        let side = Side {
            title: "",
            kind: AxisKind::Log,
        };
        for svg in [bars("", &[]), lines("", side, side, &[])] {
            assert!(
                svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
        }
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name = format!("gateway{}run", "x".repeat(90));
        let cut = cut(&name);
        assert_eq!(cut.chars().count(), NAME_CHARS - 1);
        assert!(cut.starts_with("gateway") && cut.ends_with("run"));
    }
}
