//! A file of requests: steps with a time, the descriptors of one request, and the answer.
//!
//! | key | meaning |
//! |---|---|
//! | `say` | what happens, for the reader |
//! | `at`, `after` | the time of the step, or the time since the step before it |
//! | `exceptions` | the file or folder of `exceptions/` that is in force from this step on, or `none` |
//! | `ask` | a descriptor `key=value,key=value`, or a list of descriptors |
//! | `hits` | the cost of each descriptor |
//! | `receipt` | the name under which the receipt of the answer is kept |
//! | `settle` | the name of the receipt that each descriptor returns; `hits` are then the real cost |
//! | `hold` | the request reserves; the name under which the hold is kept |
//! | `commit` | the kept hold to commit, by name; `hits` are then the real cost |
//! | `repeat` | how many times the request is sent; the answer is that to the last one, its code that to each of them |
//! | `answer` | `OK` or `OVER_LIMIT` |
//! | `left` | the units left of each descriptor: a number, `none` without a limit, or `unlimited` |
//! | `announce` | the limits that the answer announces: `name;near` or `name;over` |
//! | `retry`, `delay` | the longest `retry_after` of the descriptors that are over, and the longest delay of a queue |

use serde_json::{Map, Value};

use crate::support::yaml;

/// In place of a file: no exceptions are in force.
pub const NO_EXCEPTIONS: &str = "none";

/// One request, sent once or several times.
pub struct Step {
    pub say: String,
    pub at_us: u64,
    /// The name in `exceptions/`, or [`NO_EXCEPTIONS`]; `None` if the step changes nothing.
    pub exceptions: Option<String>,
    /// Descriptors as `key=value,key=value`.
    pub ask: Vec<String>,
    pub hits: Option<u64>,
    /// The name of the receipt that is kept, and of the receipt that is returned.
    pub receipt: Option<String>,
    pub settle: Option<String>,
    /// The same for a hold.
    pub hold: Option<String>,
    pub commit: Option<String>,
    pub repeat: u64,
    pub answer: String,
    /// Empty if the file does not say it.
    pub left: Vec<String>,
    /// `None` if the file does not say it.
    pub announced: Option<Vec<String>>,
    pub retry_us: Option<u64>,
    pub delay_us: Option<u64>,
}

/// Reads the steps of a file.
pub fn read(text: &str) -> Vec<Step> {
    let document = yaml::parse(text);
    let mut now_us = 0;
    let steps = document.as_array().expect("a list of steps").iter().map(|step| {
        let step = Fields(step.as_object().expect("a step is a map").clone()).into_step(now_us);
        now_us = step.at_us;
        step
    });
    steps.collect()
}

struct Fields(Map<String, Value>);

impl Fields {
    fn into_step(mut self, before_us: u64) -> Step {
        let at_us = self.text("at").map(|text| time_us(&text));
        let after_us = self.text("after").map_or(0, |text| duration_us(&text));
        let step = Step {
            at_us: at_us.unwrap_or(before_us) + after_us,
            say: self.text("say").unwrap_or_default(),
            exceptions: self.text("exceptions"),
            ask: self.texts("ask"),
            hits: self.0.remove("hits").map(|hits| hits.as_u64().expect("a number")),
            receipt: self.text("receipt"),
            settle: self.text("settle"),
            hold: self.text("hold"),
            commit: self.text("commit"),
            repeat: self.0.remove("repeat").map_or(1, |repeat| repeat.as_u64().expect("a number")),
            answer: self.text("answer").expect("a step has an answer"),
            left: self.texts("left"),
            announced: self.0.contains_key("announce").then(|| self.texts("announce")),
            retry_us: self.text("retry").map(|text| duration_us(&text)),
            delay_us: self.text("delay").map(|text| duration_us(&text)),
        };
        assert!(self.0.is_empty(), "a step has unknown keys: {:?}", self.0);
        step
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).map(|value| text_of(&value))
    }

    /// A list of texts, or one text.
    fn texts(&mut self, name: &str) -> Vec<String> {
        match self.0.remove(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(text_of).collect(),
            Some(one) => vec![text_of(&one)],
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A whole number with its unit.
fn duration_us(text: &str) -> u64 {
    let units = [
        ("ms", 1_000),
        ("us", 1),
        ("s", 1_000_000),
        ("m", 60_000_000),
        ("h", 3_600_000_000),
        ("d", 86_400_000_000),
    ];
    let parsed = units.iter().find_map(|(unit, us)| Some(text.strip_suffix(unit)?.parse::<u64>().ok()? * us));
    parsed.unwrap_or_else(|| panic!("{text} is not a duration such as 90s"))
}

/// A time in UTC such as `2027-03-01T09:00:00Z`, in microseconds since the epoch.
pub fn time_us(text: &str) -> u64 {
    let numbers: Vec<i64> = text
        .trim_end_matches('Z')
        .split(['-', 'T', ':'])
        .map(|part| part.parse().expect("a number"))
        .collect();
    let [year, month, day, hour, minute, second] = numbers[..] else {
        panic!("{text} is not a time such as 2027-03-01T09:00:00Z");
    };
    // The days since the epoch in the Gregorian calendar, whose years begin in March here.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    u64::try_from(seconds).expect("after 1970") * 1_000_000
}

#[test]
fn times_and_durations_are_those_of_other_programs() {
    // `date -u -d 2027-03-01T09:00:00Z +%s`
    assert_eq!(time_us("2027-03-01T09:00:00Z"), 1_803_891_600_000_000);
    assert_eq!(time_us("2028-02-29T23:59:59Z"), 1_835_481_599_000_000);
    assert_eq!(time_us("1970-01-01T00:00:00Z"), 0);
    assert_eq!((duration_us("100ms"), duration_us("15m")), (100_000, 900_000_000));
}
