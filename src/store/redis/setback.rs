//! Why a request got no answer from a server, and whether another may be asked. Knows what the servers of a cluster say
//! when the wrong one was asked; knows nothing of who is the right one.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::cluster::slots::Address;
use super::codec::Encoded;
use crate::engine::StoreError;

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Setback {
    /// For good. Whether it was decided may not be known, so it is not to be sent again.
    Failed(StoreError),
    /// For now: it surely was not decided.
    NotRun(Box<NotRun>),
}

/// A request that was not decided.
#[derive(Debug)]
pub(super) struct NotRun {
    pub(super) request: Encoded,
    pub(super) obstacle: Obstacle,
}

/// What kept a request from being decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It did not leave this process.
    Unsent(StoreError),
    /// The server has not, or not alone, what the request is about.
    Redirected(Redirect),
}

/// What a server of a cluster says that is not to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another server has the slot, for good. An empty host is the answering server's own.
    Moved(Address),
    /// The slot is on its way, and the keys are not here any more: the other is to be asked, this once.
    Ask(Address),
    /// The slot is on its way, and some keys are here, some there.
    TryAgain,
    /// The cluster does not serve the slot.
    Down,
}

impl Setback {
    pub(super) fn unsent(request: Encoded, failure: StoreError) -> Self {
        Self::NotRun(Box::new(NotRun { request, obstacle: Obstacle::Unsent(failure) }))
    }

    pub(super) fn redirected(request: Encoded, redirect: Redirect) -> Self {
        Self::NotRun(Box::new(NotRun { request, obstacle: Obstacle::Redirected(redirect) }))
    }
}

/// Where nobody else can be asked.
impl From<Setback> for StoreError {
    fn from(setback: Setback) -> Self {
        match setback {
            Setback::Failed(failure) => failure,
            Setback::NotRun(not_run) => match not_run.obstacle {
                Obstacle::Unsent(failure) => failure,
                Obstacle::Redirected(redirect) => redirect.into(),
            },
        }
    }
}

impl From<Redirect> for StoreError {
    fn from(redirect: Redirect) -> Self {
        Self::Refused(match redirect {
            Redirect::Moved(_) | Redirect::Ask(_) => "another node of the cluster has the slot".to_owned(),
            Redirect::TryAgain => "the keys are just being moved to another node".to_owned(),
            Redirect::Down => "the cluster does not serve the slot".to_owned(),
        })
    }
}

impl Redirect {
    /// What the error says of who is to be asked; `None` when it says nothing of that.
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let ErrorKind::Server(kind) = error.kind() else { return None };
        let address = || Address::parse(error.redirect_node()?.0);
        match kind {
            ServerErrorKind::Moved => address().map(Self::Moved),
            ServerErrorKind::Ask => address().map(Self::Ask),
            ServerErrorKind::TryAgain => Some(Self::TryAgain),
            ServerErrorKind::ClusterDown => Some(Self::Down),
            _ => None,
        }
    }
}
