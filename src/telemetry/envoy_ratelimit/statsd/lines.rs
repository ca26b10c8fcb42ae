//! Formats metrics as statsd or DogStatsD lines, and packs them into packets.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cadence::prelude::*;
use cadence::{MetricSink, StatsdClient, StatsdClientBuilder};

use super::options::{Mogrifiers, StatsdFormat};
use super::timings::Timing;

/// Payload of an Ethernet frame with IPv6 and UDP headers.
const MAX_PACKET_BYTES: usize = 1_432;

/// Lines sent together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) text: String,
    pub(super) lines: u64,
}

#[derive(Debug)]
pub(super) struct Lines {
    client: StatsdClient,
    packets: PacketSink,
    /// Appended to every name: statsd does not have tags.
    name_end: String,
    mogrifiers: Mogrifiers,
}

/// Receives the lines that the client writes.
#[derive(Clone, Debug, Default)]
struct PacketSink(Arc<Mutex<Vec<Packet>>>);

impl MetricSink for PacketSink {
    fn emit(&self, line: &str) -> io::Result<usize> {
        let mut packets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = |packet: &&mut Packet| packet.text.len() + 1 + line.len() <= MAX_PACKET_BYTES;
        match packets.last_mut().filter(has_room) {
            Some(packet) => {
                packet.text.push('\n');
                packet.text.push_str(line);
                packet.lines += 1;
            }
            None => packets.push(Packet { text: line.to_owned(), lines: 1 }),
        }
        Ok(line.len())
    }
}

impl Lines {
    pub(super) fn new(format: StatsdFormat, tags: &[(String, String)], mogrifiers: Mogrifiers) -> Self {
        let packets = PacketSink::default();
        let builder = StatsdClient::builder("", packets.clone());
        let (builder, name_end, mogrifiers) = match format {
            StatsdFormat::DogStatsd => {
                let with_tag = |builder: StatsdClientBuilder, (name, value): &(String, String)| {
                    builder.with_tag(plain(name), plain(value))
                };
                (tags.iter().fold(builder, with_tag), String::new(), mogrifiers)
            }
            StatsdFormat::Statsd => (builder, name_end(tags), Mogrifiers::default()),
        };
        Self { client: builder.build(), packets, name_end, mogrifiers }
    }

    pub(super) fn count(&self, name: &str, units: u64) {
        let (name, tags) = self.named(name);
        let line = self.client.count_with_tags(&name, units);
        tags.iter().fold(line, |line, (tag, value)| line.with_tag(tag, value)).send();
    }

    pub(super) fn gauge(&self, name: &str, value: u64) {
        let (name, tags) = self.named(name);
        let line = self.client.gauge_with_tags(&name, value);
        tags.iter().fold(line, |line, (tag, value)| line.with_tag(tag, value)).send();
    }

    pub(super) fn timing(&self, Timing { method, took_ms }: Timing) {
        let (name, tags) = self.named(&format!("ratelimit_server.{method}.response_time"));
        let line = self.client.time_with_tags(&name, took_ms);
        tags.iter().fold(line, |line, (tag, value)| line.with_tag(tag, value)).send();
    }

    /// Returns the packets with the lines since the last call.
    pub(super) fn take_packets(&self) -> Vec<Packet> {
        std::mem::take(&mut *self.packets.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn named(&self, name: &str) -> super::options::Named {
        // Also before the mogrifiers: a dot in a pattern does not match a line break.
        let name = plain_name(name);
        let (name, tags) = self.mogrifiers.apply(&name).unwrap_or_else(|| (name, Vec::new()));
        let tags = tags.iter().map(|(tag, value)| (plain(tag), plain(value))).collect();
        (format!("{}{}", plain_name(&name), self.name_end), tags)
    }
}

/// Formats tags like gostats: sorted by name, and without a name's separators in the values.
fn name_end(tags: &[(String, String)]) -> String {
    let mut tags: Vec<_> = tags.iter().collect();
    tags.sort();
    let tag = |(name, value): &(String, String)| {
        format!(".__{}={}", plain_name(name), plain_name(value).replace('.', "_"))
    };
    tags.into_iter().map(tag).collect()
}

/// Removes a line's separators from a name. A dot is part of the name.
fn plain_name(name: &str) -> String {
    name.replace(|letter: char| letter.is_control() || matches!(letter, ':' | '|'), "_")
}

/// Removes a line's separators from a tag or its value.
fn plain(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() || matches!(letter, '|' | ',' | '#'), "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::envoy_ratelimit::statsd::Mogrifier;

    fn texts(lines: &Lines) -> Vec<String> {
        lines.take_packets().into_iter().map(|packet| packet.text).collect()
    }

    #[test]
    fn tags_are_part_of_the_name_for_statsd_and_follow_the_value_for_dogstatsd() {
        let tags =
            [("version", "1.2:3"), ("env", "prod")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mogrifier = Mogrifier {
            pattern: regex::Regex::new(r"^a\.(.*)$").expect("valid"),
            name: "b".to_owned(),
            tags: vec![("c".to_owned(), "$1".to_owned())],
        };
        let all = Mogrifiers(vec![mogrifier]);
        let write = |format| {
            let lines = Lines::new(format, &tags, all.clone());
            lines.count("a.x,y\nz", 3);
            lines.gauge("g", 4);
            lines.timing(Timing { method: "Check", took_ms: 5 });
            texts(&lines).concat()
        };
        assert_eq!(
            write(StatsdFormat::Statsd),
            "a.x,y_z.__env=prod.__version=1_2_3:3|c\ng.__env=prod.__version=1_2_3:4|g\n\
             ratelimit_server.Check.response_time.__env=prod.__version=1_2_3:5|ms"
        );
        assert_eq!(
            write(StatsdFormat::DogStatsd),
            "b:3|c|#version:1.2:3,env:prod,c:x_y_z\ng:4|g|#version:1.2:3,env:prod\n\
             ratelimit_server.Check.response_time:5|ms|#version:1.2:3,env:prod"
        );
    }

    #[test]
    fn a_packet_has_whole_lines_and_fits_into_a_frame() {
        let lines = Lines::new(StatsdFormat::Statsd, &[], Mogrifiers::default());
        (0..100).for_each(|n| lines.count(&format!("name.{n:0>40}"), 1));
        lines.count(&"x".repeat(2_000), 1);
        let packets = lines.take_packets();
        assert_eq!(packets.iter().map(|packet| packet.lines).sum::<u64>(), 101);
        for packet in &packets {
            assert_eq!(packet.text.lines().count() as u64, packet.lines);
            assert!(packet.text.len() <= MAX_PACKET_BYTES || packet.lines == 1, "{}", packet.text.len());
        }
        assert_eq!(lines.take_packets(), Vec::new());
    }
}
