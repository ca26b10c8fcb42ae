//! Changed copies of inputs: bits, bytes, numbers, ranges, and parts of other inputs.

use fastrand::Rng;

/// Changes of one input.
const MOST_CHANGES: usize = 6;
const MAX_BYTES: usize = 16 * 1024;
/// Bytes at which programs often go wrong.
const BYTES: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b':', b'-', b'"', b'{', b'9'];

/// Makes changed inputs from a list of inputs.
pub struct Changes {
    inputs: Vec<Vec<u8>>,
    random: Rng,
}

impl Changes {
    pub fn new(inputs: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { inputs, random: Rng::with_seed(seed) }
    }

    /// A copy of one of the inputs with one change or several.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.inputs[self.random.usize(..self.inputs.len())].clone();
        for _ in 0..self.random.usize(1..=MOST_CHANGES) {
            self.change(&mut input);
        }
        input.truncate(MAX_BYTES);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let (start, end) = self.range(input.len());
        match self.random.u8(..7) {
            0 if start < input.len() => input[start] ^= 1 << self.random.u8(..8),
            1 if start < input.len() => input[start] = BYTES[self.random.usize(..BYTES.len())],
            2 => input.insert(start, self.random.u8(..)),
            3 => drop(input.drain(start..end)),
            4 => {
                let copy = input[start..end].to_vec();
                let at = self.random.usize(..=input.len());
                input.splice(at..at, copy);
            }
            5 => {
                let other = self.inputs[self.random.usize(..self.inputs.len())].clone();
                let (from, to) = self.range(other.len());
                input.splice(start..end, other[from..to].iter().copied());
            }
            _ => {
                let number = self.random.u64(..) >> self.random.u8(..64);
                input.splice(start..end, number.to_string().into_bytes());
            }
        }
    }

    /// A range within a length; most are short.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let start = self.random.usize(..=length);
        let most = (length - start).min(1 << self.random.u8(..10));
        (start, start + self.random.usize(..=most))
    }
}

#[test]
fn the_same_seed_changes_in_the_same_way_and_each_input_is_bounded() {
    let changes = || Changes::new(vec![b"domain: a\n".to_vec(), vec![0; MAX_BYTES]], 1);
    let (mut first, mut second) = (changes(), changes());
    let inputs: Vec<_> = (0..200).map(|_| first.next_input()).collect();
    assert!(inputs.iter().all(|input| *input == second.next_input() && input.len() <= MAX_BYTES));
    assert!(inputs.iter().any(|input| input.len() < 20 && input.as_slice() != b"domain: a\n"));
}
