//! Serves one connection with HTTP/2, on the h2 crate.
//!
//! A decision takes less time than the task, the boxed body and the timer that a general HTTP server gives to each
//! call. Here a call whose message has arrived with its headers is decided and answered on the task of its connection.
//! Only a call that has to wait becomes a task. That saves an eighth of the instructions of a decision.
//!
//! This module knows HTTP/2 and the counts of open calls. `grpc/call.rs` knows what a call means.
//!
//! A general HTTP server has duties that h2 leaves to its user. They are done here:
//! - `connection.rs`: windows and bounds of h2, calls in the order of their arrival, GOAWAY on request, a bound on the
//!   streams that h2 does not release
//! - `header_blocks.rs`: a header block in several frames, in bounded memory
//! - `answering.rs`: answers go out as far as the client's window admits, and the rest waits in a task; the end of a
//!   call by its time limit, or because its client resets it
//! - `held_calls.rs`: calls that start later, because the store has enough to decide
//!
//! Three more of these duties are elsewhere: opening windows again as data is read (`message.rs`), the time that the
//! client gives to a call (`call_head.rs`), and the PING after silence (`silence.rs`).

mod answering;
pub(super) mod connection;
pub(super) mod header_blocks;
mod held_calls;
