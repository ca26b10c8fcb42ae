//! A histogram over whole numbers: exact below 4,096, in steps of less than 1 % above.

/// Numbers below this have a bucket each.
const EXACT: u64 = 4_096;
/// Buckets between two powers of two above that.
const STEPS: u64 = 128;

#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    buckets: Vec<u64>,
    total: u64,
}

fn bucket(number: u64) -> usize {
    let index = if number < EXACT {
        number
    } else {
        let exponent = u64::from(number.ilog2());
        // The seven bits after the first one.
        EXACT + (exponent - 12) * STEPS + ((number >> (exponent - 7)) & (STEPS - 1))
    };
    // At most 4,096 + 52 * 128.
    usize::try_from(index).unwrap_or(usize::MAX)
}

fn largest(bucket: usize) -> u64 {
    let index = bucket as u64;
    if index < EXACT {
        return index;
    }
    let (exponent, step) = (12 + (index - EXACT) / STEPS, (index - EXACT) % STEPS);
    ((STEPS + step + 1) << (exponent - 7)) - 1
}

impl Histogram {
    pub fn add(&mut self, number: u64, weight: u64) {
        let bucket = bucket(number);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += weight;
        self.total += weight;
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest number of the highest bucket that is not empty.
    pub fn max(&self) -> u64 {
        self.buckets.iter().rposition(|count| *count > 0).map_or(0, largest)
    }

    /// Precomputes the counts above numbers, for many look-ups.
    pub fn above(&self) -> Above {
        let mut above = vec![0; self.buckets.len()];
        let mut sum = 0;
        for (bucket, count) in self.buckets.iter().enumerate().rev() {
            above[bucket] = sum;
            sum += count;
        }
        Above { total: self.total, above }
    }
}

/// How much of a histogram lies above a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Above {
    total: u64,
    above: Vec<u64>,
}

impl Above {
    /// The count above the bucket of `number`: for numbers below 4,096 exactly that above `number`.
    pub fn count(&self, number: u64) -> u64 {
        self.above.get(bucket(number)).copied().unwrap_or(0)
    }

    /// The smallest number (the largest of its bucket) above which there is at most `most`.
    pub fn smallest(&self, most: u64) -> u64 {
        if self.total <= most {
            return 0;
        }
        // The counts fall with the number.
        largest(self.above.partition_point(|above| *above > most))
    }
}

/// The largest number in the bucket of `number`.
pub(super) fn rounded_up(number: u64) -> u64 {
    largest(bucket(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_exact_below_their_bound_and_narrow_above() {
        for number in (0..10_000).chain((12..40).map(|bits| 1 << bits)).chain([u64::from(u32::MAX)]) {
            let up = rounded_up(number);
            assert!(up >= number && bucket(up) == bucket(number), "{number}");
            assert!(number >= EXACT || up == number, "{number}");
            assert!((up - number) * 100 < number.max(1), "{number} {up}");
            assert_eq!(bucket(up + 1), bucket(up) + 1, "{number}");
        }
    }

    #[test]
    fn counts_above_a_number_fall() {
        let mut histogram = Histogram::default();
        for number in [1, 2, 2, 5, 9_000] {
            histogram.add(number, 1);
        }
        let above = histogram.above();
        assert_eq!([0, 1, 2, 4, 5, 8_000, 9_100].map(|number| above.count(number)), [5, 4, 2, 2, 1, 1, 0]);
        assert_eq!([5, 4, 3, 2, 1].map(|most| above.smallest(most)), [0, 1, 2, 2, 5]);
        assert_eq!(above.smallest(0), rounded_up(9_000));
        assert_eq!(Histogram::default().above().smallest(0), 0);
        assert_eq!(histogram.max(), rounded_up(9_000));
    }
}
