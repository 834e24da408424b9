//! Axes: where a value stands, and which values are written beside the line.

/// Values spread over more than this factor are drawn on a logarithmic axis.
const LOG_FROM: f64 = 20.0;
/// Ticks that a linear axis aims at.
const TICKS: f64 = 5.0;
/// Lines at two and five are drawn too on axes of fewer decades than this.
const FINE_BELOW: f64 = 2.5;

/// One axis, from a value at one pixel to a value at another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    from: f64,
    to: f64,
    pixels: (f64, f64),
    kind: AxisKind,
}

/// How values are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisKind {
    /// Evenly, from nothing.
    Linear,
    /// By orders of magnitude; values must be above nothing.
    Log,
}

/// The kind that suits values: logarithmic if they are all above nothing and far apart.
pub fn kind(values: impl Iterator<Item = f64> + Clone) -> AxisKind {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    if least > 0.0 && most / least >= LOG_FROM {
        AxisKind::Log
    } else {
        AxisKind::Linear
    }
}

impl Axis {
    /// An axis that holds all values with round ends; a linear one begins at nothing.
    pub fn over(
        values: impl Iterator<Item = f64> + Clone,
        kind: AxisKind,
        pixels: (f64, f64),
    ) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let most = finite.clone().fold(0.0, f64::max);
        let (from, to) = match kind {
            AxisKind::Linear => {
                let step = step(most);
                (0.0, (most / step).ceil().max(1.0) * step)
            }
            AxisKind::Log => {
                let least = finite
                    .filter(|value| *value > 0.0)
                    .fold(f64::INFINITY, f64::min);
                let (least, most) = if least.is_finite() {
                    (least, most)
                } else {
                    (1.0, 10.0)
                };
                let from = 10f64.powf(least.log10().floor());
                let to = 10f64.powf(most.log10().ceil());
                (from, if to > from { to } else { from * 10.0 })
            }
        };
        Self {
            from,
            to,
            pixels,
            kind,
        }
    }

    /// The pixel of a value; what is outside stands at the end.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.kind {
            AxisKind::Linear => (value - self.from) / (self.to - self.from),
            AxisKind::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        let share = if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        };
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// The values to write beside it, in order.
    pub fn ticks(&self) -> Vec<f64> {
        match self.kind {
            AxisKind::Linear => {
                let step = step(self.to);
                let count = (self.to / step).round() as u32;
                (0..=count).map(|tick| f64::from(tick) * step).collect()
            }
            AxisKind::Log => {
                let decades = (self.from.log10().round() as i32)..=(self.to.log10().round() as i32);
                let fine = (self.to / self.from).log10() < FINE_BELOW;
                let within: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let all = decades
                    .flat_map(|decade| within.iter().map(move |part| part * 10f64.powi(decade)));
                all.filter(|tick| *tick <= self.to * 1.000_001).collect()
            }
        }
    }
}

/// One, two or five times a power of ten, so that some five of it reach `most`.
fn step(most: f64) -> f64 {
    let rough = if most > 0.0 {
        most / TICKS
    } else {
        1.0 / TICKS
    };
    let power = 10f64.powf(rough.log10().floor());
    let parts = [1.0, 2.0, 5.0, 10.0];
    let part = parts
        .into_iter()
        .find(|part| part * power >= rough * 0.999_999);
    part.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(values: &[f64]) -> Axis {
        Axis::over(
            values.iter().copied(),
            kind(values.iter().copied()),
            (100.0, 0.0),
        )
    }

    #[test]
    fn close_values_stand_on_a_linear_axis_from_nothing() {
        let axis = axis(&[3.0, 9.3]);
        assert_eq!(axis.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            (axis.place(0.0), axis.place(5.0), axis.place(10.0)),
            (100.0, 50.0, 0.0)
        );
    }

    #[test]
    fn values_far_apart_stand_on_whole_decades() {
        let axis = axis(&[120.0, 9_000.0, 40_000.0]);
        assert_eq!(axis.ticks(), [100.0, 1e3, 1e4, 1e5]);
        assert!((axis.place(1e3) - 100.0 * 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn few_decades_have_finer_ticks() {
        assert_eq!(axis(&[0.2, 9.0]).ticks().len(), 7);
    }

    #[test]
    fn odd_values_have_a_place_all_the_same() {
        for values in [
            &[][..],
            &[0.0],
            &[0.0, 1e9],
            &[5.0],
            &[f64::NAN, 1.0],
            &[1.0, f64::INFINITY],
        ] {
            let axis = axis(values);
            assert!(
                !axis.ticks().is_empty() && axis.ticks().len() < 30,
                "{values:?}"
            );
            for value in values.iter().chain(&[-1.0, 0.0, 1e300]) {
                assert!(
                    (0.0..=100.0).contains(&axis.place(*value)),
                    "{values:?}: {value}"
                );
            }
        }
    }
}
