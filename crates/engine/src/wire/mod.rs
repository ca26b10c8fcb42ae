//! A request as callers write it, in protobuf or in its JSON mapping, and its validation. The doors of the service and
//! the readers of recorded requests make a [`RawRequest`]; [`RawRequest::validate`] is the only way to a
//! [`Request`](crate::Request).

pub mod json;
mod raw_request;
mod unit;

pub use raw_request::{Bounds, RawDescriptor, RawLimit, RawRequest, RequestError};
pub use unit::{WireUnit, request_unit, request_units};
