//! Queries the server once: connects, takes the first answer, and disconnects. Acknowledges nothing, so that the server
//! does not count another client.

use std::time::Duration;

use base::{escaped, readable_duration};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use super::connect::{ConnectError, connect, load};
use super::options::XdsOptions;
use super::pb::envoy::service::discovery::v3::DiscoveryResponse;
use super::resources::{Resource, decode_all};
use super::stream::{OpenStream, StreamEnd, open};
use super::subscription::{Subscription, TYPE_URL};

/// A server sends its rules within milliseconds, or does not answer a client for which it has none.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Fetched {
    pub version: String,
    pub resources: Vec<Resource>,
}

#[derive(Debug, thiserror::Error)]
pub enum XdsFetchError {
    /// The certificates are invalid, or there is no connection or no stream.
    #[error("{0}")]
    Failed(String),
    #[error("the answer is of type \"{0}\"")]
    Type(String),
    #[error(
        "no rules received within {}; the server has none for the node '{node}' (rules.xds.node_id)",
        readable_duration(ANSWER_WITHIN)
    )]
    NoRules { node: String },
}

/// Requests all rules from the server, once.
///
/// # Errors
/// [`XdsFetchError`] if there is no connection, or no answer in time.
pub async fn fetch(options: &XdsOptions) -> Result<Fetched, XdsFetchError> {
    let channel = connection(options).await.map_err(|error| XdsFetchError::Failed(error.to_string()))?;
    let asking = first_answer(channel, options);
    let no_rules = |_| XdsFetchError::NoRules { node: options.identity.id.clone() };
    let answered = tokio::time::timeout(ANSWER_WITHIN, asking).await.map_err(no_rules)?;
    let answer = answered.map_err(|end| XdsFetchError::Failed(end.reason()))?;
    if answer.type_url != TYPE_URL {
        return Err(XdsFetchError::Type(escaped(answer.type_url)));
    }
    Ok(Fetched { version: answer.version_info, resources: decode_all(answer.resources) })
}

async fn connection(options: &XdsOptions) -> Result<Channel, ConnectError> {
    let connector = match &options.tls {
        Some(tls) => {
            let (_, connector) = load(tls).await;
            Some(connector?)
        }
        None => None,
    };
    connect(options, connector.as_ref()).await
}

async fn first_answer(channel: Channel, options: &XdsOptions) -> Result<DiscoveryResponse, StreamEnd> {
    let headers = MetadataMap::from_headers(options.headers.clone());
    let first = Subscription::new(&options.identity).first_request();
    let opened = open(channel, first, &headers, options.max_message_bytes).await;
    // The stream ends with its requests, so they are kept until the answer arrives.
    let OpenStream { requests: _requests, mut answers } = opened.map_err(StreamEnd::Failed)?;
    let answer = answers.message().await.map_err(StreamEnd::Failed)?;
    answer.ok_or(StreamEnd::Closed)
}
