//! A SplitMix64 generator: its numbers stay the same with every version of every crate, so a seed stays a story.

/// A generator. The same seed always gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn with_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The modulo makes small numbers slightly more likely. This does not matter for a corpus.
        self.next() % end
    }

    /// A number from `first` to `last`, both included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which is not empty.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let place = self.below(choices.len() as u64);
        choices[usize::try_from(place).expect("below a length")].clone()
    }

    /// One of `choices`, with a probability in proportion to its weight.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for &(weight, choice) in choices {
            if left < weight {
                return choice;
            }
            left -= weight;
        }
        unreachable!("the number is below the sum of all weights")
    }
}

#[cfg(test)]
#[test]
fn the_numbers_are_those_of_the_published_algorithm() {
    // The first outputs of the reference implementation (Vigna, splitmix64.c) for seed 1234567.
    let mut random = Random::with_seed(1_234_567);
    let numbers: Vec<u64> = (0..3).map(|_| random.next()).collect();
    assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}
