//! The streams of the instances: opened, read, and reopened when they break.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::events::{ConsoleEvent, EventBytes, parsed_state};
use super::view::{Contact, InstanceSeen};
use crate::admin_call::AdminCallArgs;
use crate::admin_port::AdminPort;

/// Waits between attempts: doubled after each failure, up to the longest.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Updates that the reader has not taken; beyond that the streams wait.
const MOST_UPDATES: usize = 64;

/// News of an instance, given by its index in the list.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) instance: usize,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    Event(ConsoleEvent),
    /// The stream broke, or could not be opened; the next attempt is after `wait`.
    Lost {
        error: String,
        wait: Duration,
    },
}

/// Queries all instances once, concurrently.
pub(super) async fn asked_once(call: &AdminCallArgs, ports: &[AdminPort]) -> Vec<InstanceSeen> {
    let instance = async |port: &AdminPort| {
        let text = call.get(port, "/console/state").await.map_err(|error| error.to_string());
        let state = text.and_then(|text| parsed_state(&text).map_err(|error| error.to_string()));
        let mut seen = InstanceSeen::new(port.to_string());
        match state {
            Ok(state) => seen.event(ConsoleEvent::State(Box::new(state))),
            Err(error) => seen.contact = Contact::Lost { error, wait: None },
        }
        seen
    };
    join_all(ports.iter().map(instance)).await
}

/// Follows all instances. The future does not end: drop it to close the streams.
pub(super) fn follow(
    call: &AdminCallArgs,
    ports: &[AdminPort],
) -> (impl Future<Output = ()>, Receiver<Update>) {
    let (sender, updates) = channel(MOST_UPDATES);
    let streams = ports.iter().enumerate().map(move |(instance, port)| {
        let sender = sender.clone();
        async move { follow_one(call, port, instance, &sender).await }
    });
    let streams = join_all(streams);
    (async { drop(streams.await) }, updates)
}

async fn follow_one(call: &AdminCallArgs, port: &AdminPort, instance: usize, updates: &Sender<Update>) {
    let mut wait = SHORTEST_WAIT;
    loop {
        let mut events = 0_usize;
        let error = stream_error(call, port, async |event| {
            events += 1;
            // The reader is gone when the command ends, and this future with it.
            let _ = updates.send(Update { instance, news: News::Event(event) }).await;
        })
        .await;
        if events > 0 {
            wait = SHORTEST_WAIT;
        }
        let _ = updates.send(Update { instance, news: News::Lost { error, wait } }).await;
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Reads one stream to its end, and returns why it ended.
async fn stream_error(
    call: &AdminCallArgs,
    port: &AdminPort,
    mut take: impl AsyncFnMut(ConsoleEvent),
) -> String {
    let mut stream = match call.open(port, "/console/events").await {
        Ok(stream) => stream,
        Err(error) => return error.to_string(),
    };
    let mut bytes = EventBytes::default();
    loop {
        let events = match call.next(&mut stream).await {
            Ok(Some(more)) => bytes.add(&more),
            Ok(None) => return "the stream has ended".to_owned(),
            Err(error) => return error.to_string(),
        };
        match events {
            Ok(events) => {
                for event in events {
                    if event == ConsoleEvent::End {
                        return "the process has stopped".to_owned();
                    }
                    take(event).await;
                }
            }
            Err(error) => return error.to_string(),
        }
    }
}
