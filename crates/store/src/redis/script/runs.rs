//! The reply to requests with an equal charge, in runs: some charges that each add the same to the counter, then some
//! that leave it as it is. lua/batch.lua describes the numbers. They are expanded here, so that the
//! reply is as short for a thousand requests as for two.

use smallvec::SmallVec;

use super::encode::Encoded;
use super::layout::StepOf;

/// The part of a reply for one group of requests.
#[derive(Debug)]
pub(super) enum GroupReply<'n> {
    /// The answer to the only request.
    One(&'n [i64]),
    /// The answers to equal charges.
    Equal(Runs<'n>),
}

/// What is left of the reply to equal charges.
#[derive(Debug)]
pub(super) struct Runs<'n> {
    step: Step,
    /// How many numbers an answer has.
    width: usize,
    run: Run,
    /// The runs after it.
    later: &'n [i64],
}

/// A run of charges with the same verdict.
#[derive(Debug, Default)]
struct Run {
    /// How many of its charges have no answer yet.
    left: u64,
    is_over: bool,
    /// Whether each charge is counted. If not, they all have the same answer.
    is_counted: bool,
    /// The counter after the next charge.
    counter: SmallVec<[i64; 4]>,
}

/// What each charge adds to the first two numbers of a counter.
#[derive(Debug)]
struct Step {
    added: [i64; 2],
    /// The second number is a fraction of the first, in parts of this size.
    denominator: Option<i64>,
}

impl<'n> GroupReply<'n> {
    /// Takes the reply to `size` requests like this one from the front of the numbers. `None` if the numbers are no
    /// such reply.
    pub(super) fn split_off(numbers: &mut &'n [i64], request: &Encoded, size: u16) -> Option<Self> {
        let width = request.reply_width();
        let Some(step) = request.step_of().filter(|_| size > 1) else {
            let answer;
            (answer, *numbers) = numbers.split_at_checked(width)?;
            return Some(Self::One(answer));
        };
        let all = *numbers;
        let mut missing = u64::from(size);
        while missing > 0 {
            let (run, after) = numbers.split_at_checked(1 + width)?;
            let charges = run[0].unsigned_abs();
            if charges == 0 {
                return None;
            }
            missing = missing.checked_sub(charges)?;
            *numbers = after;
        }
        let later = &all[..all.len() - numbers.len()];
        Some(Self::Equal(Runs { step: Step::new(step, request), width, run: Run::default(), later }))
    }

    /// The numbers of the answer to the next request of the group, as if it had been sent for itself. The group has no
    /// more answers than requests.
    pub(super) fn next_answer(&mut self) -> SmallVec<[i64; 4]> {
        match self {
            Self::One(answer) => SmallVec::from_slice(answer),
            Self::Equal(runs) => runs.next_answer(),
        }
    }
}

impl Runs<'_> {
    fn next_answer(&mut self) -> SmallVec<[i64; 4]> {
        let mut run = std::mem::take(&mut self.run);
        if run.left == 0 {
            let (first, later) = self.later.split_at(1 + self.width);
            self.later = later;
            run = Run::starting(first);
        }
        let mut answer = run.counter.clone();
        if run.is_over {
            answer[0] = -1 - answer[0];
        }
        run.left -= 1;
        if run.is_counted {
            self.step.add_to(&mut run.counter);
        }
        self.run = run;
        answer
    }
}

impl Run {
    /// The run with these numbers: at least two.
    fn starting(numbers: &[i64]) -> Self {
        let mut counter: SmallVec<[i64; 4]> = numbers[1..].into();
        let is_over = counter[0] < 0;
        if is_over {
            counter[0] = -1 - counter[0];
        }
        Self { left: numbers[0].unsigned_abs(), is_over, is_counted: numbers[0] > 0, counter }
    }
}

impl Step {
    fn new(kind: StepOf, request: &Encoded) -> Self {
        let (added, denominator) = match kind {
            StepOf::Units => ([0, request.parameter(0)], None),
            StepOf::Tokens => ([0, -request.parameter(0)], None),
            StepOf::Time => ([request.parameter(0), 0], None),
            StepOf::TimeAndFraction => {
                ([request.parameter(0), request.parameter(1)], Some(request.parameter(4)))
            }
        };
        Self { added, denominator }
    }

    /// Saturates: what a server sends may be any number, and is checked where the outcome is made.
    fn add_to(&self, counter: &mut [i64]) {
        for (number, added) in counter.iter_mut().zip(self.added) {
            *number = number.saturating_add(added);
        }
        if let (Some(denominator), [whole, part]) = (self.denominator, counter)
            && *part >= denominator
        {
            *part -= denominator;
            *whole = whole.saturating_add(1);
        }
    }
}
