//! Reads the token files of `server.rights`, and applies changes while the process runs.

use base::clock::monotonic;
use base::{Change, Watched, check_forever};
use tls::FileError;

use crate::decide::{RightHolders, Rights};

#[derive(Debug)]
pub(super) struct RightsWatcher {
    files: Watched<RightHolders>,
    pub(super) rights: Rights,
}

impl RightsWatcher {
    /// Reads the tokens for the first time.
    ///
    /// # Errors
    /// If a file lacks a token.
    pub(super) fn start(holders: &RightHolders) -> Result<Self, FileError> {
        let (files, (tokens, errors)) = Watched::start(holders.clone(), RightHolders::read);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(Self { files, rights: Rights::new(holders, tokens) }),
        }
    }

    /// Applies changes. Never returns.
    pub(super) async fn watch(self) {
        let Self { mut files, rights } = self;
        check_forever(move || {
            let Change::Loaded((tokens, errors)) = files.check(monotonic(), RightHolders::read) else {
                return;
            };
            for error in &errors {
                tracing::error!(%error, "cannot use token file of server.rights; rejecting its token");
            }
            rights.replace(tokens);
            if errors.is_empty() {
                tracing::info!("tokens of server.rights loaded");
            }
        })
        .await;
    }
}
