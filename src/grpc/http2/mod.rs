//! Serves one connection with HTTP/2, on the h2 crate.
//!
//! A decision takes less time than the task, the boxed body and the timer that a general HTTP server gives to each
//! call. Here a call whose message has arrived with its headers is decided and answered on the task of its connection;
//! only a call that has to wait becomes a task. That saves an eighth of the instructions of a decision.
//!
//! This module knows HTTP/2 and the counts of open calls. It must not know rules, stores, settings, nor what a message
//! means: [`calls::CallStarter`] hides them.
//!
//! A general HTTP server has duties that h2 leaves to its user. They are done here:
//! - `connection.rs`: windows and bounds of h2, calls in the order of their arrival, GOAWAY on request
//! - `keep_alive.rs`: a PING after silence, the end of a connection that does not answer it
//! - `header_blocks.rs`, `sent_frames.rs`: a header block in several frames, in bounded memory
//! - `request_body.rs`: the windows are opened again as data is read
//! - `answering.rs`, `sent_body.rs`: answers go out as far as the client's window admits; the rest waits in a task
//! - `held_calls.rs`: calls that start later, because the store has enough to decide
//! - `leaked_streams.rs`: a bound of the streams that h2 does not release
//! - `deadline.rs`: the time that the client gives to a call
//! - `call_task.rs`: the end of a call by its time limit, or because its client resets it

mod answering;
mod call_task;
pub(super) mod calls;
pub(super) mod connection;
pub(super) mod deadline;
mod header_blocks;
mod held_calls;
mod keep_alive;
mod leaked_streams;
pub(super) mod request_body;
mod sent_body;
mod sent_frames;

#[cfg(test)]
pub(super) use call_task::CALL_TIMEOUT;
#[cfg(test)]
pub(super) use header_blocks::MAX_READ_HEADER_BYTES;
#[cfg(test)]
pub(super) use keep_alive::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};
