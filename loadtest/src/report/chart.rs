//! Charts as SVG: bars, and lines over two axes. A series keeps its colour in all charts of a scenario. The page sets the colour of texts.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::number::short;

/// Colours of series. A series beyond the last one begins again with the first, with dashes.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x2f, 0x86, 0xe0),
    RGBColor(0xe0, 0x6c, 0x1f),
    RGBColor(0x1f, 0x9d, 0x74),
    RGBColor(0xb3, 0x5b, 0xb0),
    RGBColor(0xc2, 0x9a, 0x12),
    RGBColor(0x3a, 0xa9, 0xcf),
    RGBColor(0x96, 0x72, 0x4f),
    RGBColor(0x85, 0x90, 0xa0),
];
const GRID: RGBColor = RGBColor(0x88, 0x90, 0x9c);
/// Size of a chart in pixels; a chart of bars is as high as it has bars.
pub const WIDTH: u32 = 760;
const HEIGHT: u32 = 300;
/// Width of a chart for a phone. It is no smaller picture of the same: its texts would be too small to read.
pub const NARROW_WIDTH: u32 = 360;
/// Labels of the horizontal axis that fit into it.
const NARROW_LABELS: usize = 4;
const LABELS: usize = 10;
/// Points of longer series are not marked: they would touch.
const MARKED_POINTS_MAX: usize = 100;
const BAR_STEP: u32 = 24;
/// Room for the names of bars; longer names keep their two ends.
const NAMES: i32 = 250;
const NAME_CHARS: usize = 40;
/// Room for the figure behind the longest bar.
const FIGURES: i32 = 70;
/// Values that are spread over a larger factor are drawn on a logarithmic axis.
const LOG_FROM: f64 = 20.0;

type Drawing<T> = Result<T, Box<dyn Error>>;

#[derive(Debug, Clone)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its number among all series of the scenario, which chooses the colour.
    pub number: usize,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A name, a figure, and the number of the series.
pub type Bar = (String, f64, usize);

/// Titles of the horizontal and the vertical axis.
pub type AxisTitles<'a> = (&'a str, &'a str);

/// The colour of a series as in CSS, and whether its line is dashed.
pub fn colour(number: usize) -> (String, bool) {
    let RGBColor(red, green, blue) = COLOURS[number % COLOURS.len()];
    let is_dashed = number >= COLOURS.len();
    (format!("#{red:02x}{green:02x}{blue:02x}"), is_dashed)
}

/// Horizontal bars, each with its figure.
pub fn bars(rows: &[Bar]) -> String {
    let height = rows.len().max(1) as u32 * BAR_STEP;
    svg((WIDTH, height), |area| {
        let most = rows
            .iter()
            .map(|row| row.1)
            .fold(f64::MIN_POSITIVE, f64::max);
        let room = f64::from(WIDTH as i32 - NAMES - FIGURES);
        let text = |position| text_style().pos(Pos::new(position, VPos::Center));
        for (top, (name, value, number)) in (0..).step_by(BAR_STEP as usize).zip(rows) {
            let middle = top + BAR_STEP as i32 / 2;
            let end = NAMES + (room * value.max(0.0) / most) as i32;
            let colour = COLOURS[number % COLOURS.len()];
            area.draw(&Text::new(
                shorten(name),
                (NAMES - 8, middle),
                text(HPos::Right),
            ))?;
            area.draw(&Rectangle::new(
                [(NAMES, middle - 8), (end.max(NAMES + 1), middle + 8)],
                colour.filled(),
            ))?;
            area.draw(&Text::new(
                short(*value),
                (end + 6, middle),
                text(HPos::Left),
            ))?;
        }
        Ok(())
    })
}

/// Lines over two axes. An axis is logarithmic if its values are positive and far apart.
pub fn lines(titles: AxisTitles<'_>, series: &[Series]) -> String {
    lines_within(WIDTH, titles, series)
}

/// The same in this width.
pub fn lines_within(width: u32, titles: AxisTitles<'_>, series: &[Series]) -> String {
    let x = Axis::over(points(series).map(|point| point.0));
    let y = Axis::over(points(series).map(|point| point.1));
    lines_over(width, (x, y), titles, series)
}

/// Values over time in this width; neither axis is logarithmic.
pub fn over_time_within(width: u32, titles: AxisTitles<'_>, series: &[Series]) -> String {
    let x = Axis::from_zero(points(series).map(|point| point.0));
    let y = Axis::from_zero(points(series).map(|point| point.1));
    lines_over(width, (x, y), titles, series)
}

fn points(series: &[Series]) -> impl Iterator<Item = (f64, f64)> {
    series.iter().flat_map(|one| one.points.iter().copied())
}

fn lines_over(width: u32, axes: (Axis, Axis), titles: AxisTitles<'_>, series: &[Series]) -> String {
    svg((width, HEIGHT), |area| match axes {
        (Axis::Linear(x), Axis::Linear(y)) => draw_lines(area, 0.0..x, 0.0..y, titles, series),
        (Axis::Linear(x), Axis::Log(from, to)) => {
            draw_lines(area, 0.0..x, (from..to).log_scale(), titles, series)
        }
        (Axis::Log(from, to), Axis::Linear(y)) => {
            draw_lines(area, (from..to).log_scale(), 0.0..y, titles, series)
        }
        (Axis::Log(x0, x1), Axis::Log(y0, y1)) => draw_lines(
            area,
            (x0..x1).log_scale(),
            (y0..y1).log_scale(),
            titles,
            series,
        ),
    })
}

/// The range of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Axis {
    /// From 0 to this value.
    Linear(f64),
    Log(f64, f64),
}

impl Axis {
    fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let most = values.filter(|value| value.is_finite());
        let most = most.fold(0.0, f64::max);
        Self::Linear(if most > 0.0 { most * 1.05 } else { 1.0 })
    }

    fn over(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        if least > 0.0 && most / least >= LOG_FROM {
            let decade = |value: f64| 10f64.powf(value);
            Self::Log(decade(least.log10().floor()), decade(most.log10().ceil()))
        } else {
            Self::from_zero([most].into_iter())
        }
    }
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn svg(size: (u32, u32), draw: impl FnOnce(&Canvas<'_>) -> Drawing<()>) -> String {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let drawn = draw(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    match drawn {
        Ok(()) => text,
        // Writing to a string does not fail; a chart is no reason to lose the report.
        Err(_) => String::new(),
    }
}

fn draw_lines<X, Y>(
    area: &Canvas<'_>,
    x: X,
    y: Y,
    (x_title, y_title): AxisTitles<'_>,
    series: &[Series],
) -> Drawing<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let is_narrow = area.dim_in_pixel().0 <= NARROW_WIDTH;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(28)
        .x_label_area_size(40)
        .y_label_area_size(if is_narrow { 52 } else { 64 })
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .bold_line_style(GRID.mix(0.3))
        .axis_style(GRID)
        .label_style(text_style())
        .x_desc(x_title)
        .y_desc(y_title)
        .x_labels(if is_narrow { NARROW_LABELS } else { LABELS })
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for one in series {
        let style = COLOURS[one.number % COLOURS.len()].stroke_width(2);
        let points = one.points.iter().copied();
        if one.number >= COLOURS.len() {
            chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(points.clone(), style))?;
        }
        if one.points.len() <= MARKED_POINTS_MAX {
            chart.draw_series(points.map(|point| Circle::new(point, 2, style.filled())))?;
        }
    }
    Ok(())
}

fn text_style() -> TextStyle<'static> {
    ("sans-serif", 12).into_text_style(&(WIDTH, HEIGHT))
}

/// A name that fits beside its bar: long names differ at their ends.
fn shorten(name: &str) -> String {
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
    //! Axes suit their values, texts are escaped, and every chart is one.

    use super::*;

    fn axis(values: &[f64]) -> Axis {
        Axis::over(values.iter().copied())
    }

    #[test]
    fn values_far_apart_stand_on_whole_decades() {
        assert_eq!(axis(&[120.0, 9_000.0, 40_000.0]), Axis::Log(100.0, 1e5));
        assert_eq!(axis(&[3.0, 10.0]), Axis::Linear(10.5));
        for odd in [&[][..], &[0.0], &[f64::NAN]] {
            assert_eq!(axis(odd), Axis::Linear(1.0), "{odd:?}");
        }
        assert_eq!(axis(&[0.0, 1e9]), Axis::Linear(1.05e9));
    }

    #[test]
    fn a_bar_is_as_long_as_its_figure() {
        let svg = bars(&[("half".to_owned(), 5.0, 0), ("whole".to_owned(), 10.0, 1)]);
        let width = |number: usize| {
            let part = svg
                .split("<rect")
                .find(|part| part.contains(&colour(number).0.to_uppercase()));
            let (_, rest) = part.unwrap().split_once("width=\"").unwrap();
            rest.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        assert_eq!(width(1), 2.0 * width(0));
    }

    #[test]
    fn every_kind_of_axis_is_drawn_and_texts_are_escaped() {
        for (x, y) in [(2.0, 2.0), (2.0, 1e3), (1e3, 2.0), (1e3, 1e3)] {
            let series = Series {
                name: "a".to_owned(),
                number: 9,
                points: vec![(1.0, 1.0), (x, y)],
            };
            let svg = lines(("a & b", "<script>"), &[series]);
            assert!(
                svg.contains("a &amp; b") && svg.contains("<circle"),
                "{svg}"
            );
            assert!(!svg.contains("<script"), "{svg}");
        }
    }

    #[test]
    fn charts_of_nothing_are_still_charts() {
        for svg in [bars(&[]), lines(("", ""), &[])] {
            assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn long_names_keep_both_ends() {
        let short = shorten(&format!("gateway{}run", "x".repeat(90)));
        assert_eq!(short.chars().count(), NAME_CHARS - 1);
        assert!(short.starts_with("gateway") && short.ends_with("run"));
    }
}
