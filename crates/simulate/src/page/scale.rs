//! From a value to a place on an axis. The script of the page does the same for the line that the slider moves.

use std::fmt::{self, Display};

/// An axis: the values between `low` and `high` lie between the coordinates `from` and `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    is_logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From 1 to a little more than `most`. Values below 1 are at 1.
    pub fn logarithmic(most: u64, (from, to): (f64, f64)) -> Self {
        Self { is_logarithmic: true, low: 1.0, high: as_float(most.max(2)) * 1.25, from, to }
    }

    pub fn linear((low, high): (u64, u64), (from, to): (f64, f64)) -> Self {
        let high = high.max(low.saturating_add(1));
        Self { is_logarithmic: false, low: as_float(low), high: as_float(high), from, to }
    }

    pub fn at(&self, value: u64) -> Coordinate {
        let measure = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let value = as_float(value).clamp(self.low, self.high);
        let share = (measure(value) - measure(self.low)) / (measure(self.high) - measure(self.low));
        Coordinate(self.from + share * (self.to - self.from))
    }

    /// The ends of the axis.
    pub fn ends(&self) -> (Coordinate, Coordinate) {
        (Coordinate(self.from), Coordinate(self.to))
    }

    /// Round values for labels, at most about nine.
    pub fn ticks(&self) -> Vec<u64> {
        let (low, high) = (as_integer(self.low), as_integer(self.high));
        let mut ticks = Vec::new();
        if self.is_logarithmic {
            // 1, 2, 5, 10 on a short axis; 1, 10, 100 on a long one; 1, 1,000 and so on on a very long one.
            let (between, factor): (&[u64], u64) = match self.high {
                ..=2e3 => (&[1, 2, 5], 10),
                ..=2e8 => (&[1], 10),
                _ => (&[1], 1_000),
            };
            let mut power = Some(1_u64);
            while let Some(unit) = power.filter(|unit| *unit <= high) {
                ticks.extend(
                    between.iter().filter_map(|part| part.checked_mul(unit)).filter(|tick| *tick <= high),
                );
                power = unit.checked_mul(factor);
            }
            return ticks;
        }
        let step = round_step((high - low).div_ceil(4));
        let mut next = low.checked_next_multiple_of(step);
        while let Some(tick) = next.filter(|tick| *tick <= high) {
            ticks.push(tick);
            next = tick.checked_add(step);
        }
        ticks
    }
}

/// As the script of the page reads it.
impl Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_logarithmic { "log" } else { "linear" };
        write!(f, "{kind} {} {} {} {}", self.low, self.high, self.from, self.to)
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: u64) -> u64 {
    let mut unit = 1_u64;
    loop {
        if let Some(step) = [1, 2, 5].map(|part| part * unit).into_iter().find(|step| *step >= least) {
            return step;
        }
        match unit.checked_mul(10).filter(|next| *next <= u64::MAX / 50) {
            Some(next) => unit = next,
            None => return least,
        }
    }
}

/// A place in a picture, written with one decimal if the format says no other number.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Coordinate(pub f64);

impl Display for Coordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.*}", f.precision().unwrap_or(1), self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

/// Only for places in a picture, where a deviation of one in 2^53 cannot be seen.
pub(super) fn as_float(value: u64) -> f64 {
    value as f64
}

/// `as` saturates, and the ends of a scale are not negative.
fn as_integer(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_gives_each_power_of_ten_the_same_room() {
        let scale = Scale::logarithmic(800, (0.0, 300.0));
        assert_eq!([1, 10, 100, 1_000].map(|value| scale.at(value).to_string()), ["0", "100", "200", "300"]);
        assert_eq!(scale.at(0), scale.at(1), "0 has no logarithm");
        assert_eq!(scale.ticks(), [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000]);
        assert_eq!(scale.to_string(), "log 1 1000 0 300");
        assert_eq!(Scale::logarithmic(80_000, (0.0, 1.0)).ticks(), [1, 10, 100, 1_000, 10_000, 100_000]);
        assert_eq!(Scale::logarithmic(u64::MAX, (0.0, 1.0)).ticks().len(), 7);
        assert_eq!(Scale::logarithmic(0, (0.0, 1.0)).ticks(), [1, 2]);
    }

    #[test]
    fn a_linear_axis_may_start_above_zero_and_point_upwards() {
        let scale = Scale::linear((0, 37), (200.0, 20.0));
        assert_eq!([scale.at(0), scale.at(37)], [Coordinate(200.0), Coordinate(20.0)]);
        assert_eq!(scale.ticks(), [0, 10, 20, 30]);
        assert_eq!(Scale::linear((100, 100), (0.0, 1.0)).ticks(), [100, 101]);
        assert_eq!(round_step(u64::MAX), u64::MAX);
    }
}
