//! Writes answers: a decision at once, as far as the client's window admits it; the answer of another call as its body
//! is made.

use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use hyper::body::{Body as _, Bytes};

use super::calls::Answer;
use super::sent_body::{ClientGone, send_body, send_data};
use crate::grpc::stream_body::StreamBody;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The message of an answer whose headers are sent, and which the client's window does not admit as a whole.
pub(super) struct UntakenMessage {
    stream: SendStream<Bytes>,
    message: Bytes,
}

/// Sends an answer. Returns what the client does not take yet.
pub(super) fn send_answer(respond: &mut SendResponse<Bytes>, answer: Answer) -> Option<UntakenMessage> {
    match answer {
        Answer::Message(message) => {
            let mut stream = send_head(respond, ok_head(), false)?;
            stream.reserve_capacity(message.len());
            if stream.capacity() < message.len() {
                return Some(UntakenMessage { stream, message });
            }
            if let Err(error) = stream.send_data(message, false).and_then(|()| send_ok(&mut stream)) {
                tracing::debug!(%error, "an answer cannot be sent");
            }
        }
        Answer::Refusal(status) => {
            send_head(respond, status.into_http(), true)?;
        }
        Answer::HttpRefusal(code, status) => {
            let mut head = status.into_http();
            *head.status_mut() = code;
            send_head(respond, head, true)?;
        }
    }
    None
}

impl UntakenMessage {
    /// Waits for the client.
    pub(super) async fn send_rest(mut self) {
        if send_data(&mut self.stream, self.message).await.is_ok()
            && let Err(error) = send_ok(&mut self.stream)
        {
            tracing::debug!(%error, "an answer cannot be sent");
        }
    }
}

/// Sends the answer of one of tonic's services, and waits for the client.
pub(super) async fn send_response(mut respond: SendResponse<Bytes>, response: Response<StreamBody>) {
    let (parts, body) = response.into_parts();
    let mut head = Response::from_parts(parts, ());
    if body.is_end_stream() {
        send_head(&mut respond, head, true);
        return;
    }
    if let Some(length) = body.size_hint().exact() {
        head.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    if let Some(mut stream) = send_head(&mut respond, head, false)
        && let Err(ClientGone) = send_body(&mut stream, body).await
    {
        tracing::debug!("the client did not take the whole answer");
    }
}

/// `None` if the client has reset the call, or h2 refuses the headers.
fn send_head(
    respond: &mut SendResponse<Bytes>,
    head: Response<()>,
    is_last: bool,
) -> Option<SendStream<Bytes>> {
    match respond.send_response(head, is_last) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, "an answer cannot be sent");
            respond.send_reset(Reason::INTERNAL_ERROR);
            None
        }
    }
}

fn ok_head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    head
}

/// Ends a stream with the status OK.
fn send_ok(stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}
