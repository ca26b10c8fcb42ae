//! Which token a request to the admin port needs, and whether it presents it. A wrong token is counted, logged, and
//! answered late.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use parking_lot::Mutex;
use store::log_throttle::LogThrottle;
use tls::{FileError, FileFault, on_blocking_thread};

use super::admin_access::{AdminAccess, AdminRefusal, NeededToken, OPERATOR_TOKEN_FILE, TOKEN_FILE};
use super::admin_role::AdminRole;
use super::server::ClientAddress;
use super::token_file::{Token, TokenFile};
use crate::telemetry::metrics::{TokenMeter, TokenRefusal};

/// How late a wrong token is answered.
const WRONG_ANSWERED_AFTER: Duration = Duration::from_secs(1);
/// The tokens of one address that are checked, or are wrong and wait for their answers: an address has this many
/// guesses a second. Meanwhile it gets no other answer, not even for the right token: it would learn of each guess at
/// once.
const MOST_WRONG: usize = 16;

/// Checks the requests to the admin port.
#[derive(Debug)]
pub struct AccessCheck {
    access: AdminAccess,
    /// The token for the values of keys, where the settings have none.
    own_token: Option<Token>,
    meter: TokenMeter,
    lines: TokenLines,
    wrong: WrongTokens,
}

/// A line a minute for each kind of problem: every request may meet it.
#[derive(Debug, Default)]
struct TokenLines {
    unreadable: LogThrottle,
    malformed: LogThrottle,
    refused_actions: LogThrottle,
    wrong: LogThrottle,
}

/// The tokens that are checked or wait for their answers, by address. Each has a connection, so the bound of
/// connections is one of the addresses, too.
#[derive(Debug, Default)]
struct WrongTokens(Mutex<HashMap<IpAddr, usize>>);

/// The layer around all endpoints of the admin port.
pub(super) async fn check_access(
    State(check): State<Arc<AccessCheck>>,
    Extension(ClientAddress(client)): Extension<ClientAddress>,
    request: Request,
    next: Next,
) -> Response {
    let checked = match check.access.check_sender(&request) {
        Ok(()) => {
            let role = AdminRole::for_path(request.uri().path());
            check.check_token(role, request.headers(), client).await
        }
        refused => refused,
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

impl AccessCheck {
    /// `own_token`: the one that the service has made, for the values of keys where the settings name no token.
    #[must_use]
    pub fn new(access: AdminAccess, own_token: Option<Token>, meter: TokenMeter) -> Self {
        Self { access, own_token, meter, lines: TokenLines::default(), wrong: WrongTokens::default() }
    }

    async fn check_token(
        &self,
        role: AdminRole,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Result<(), AdminRefusal> {
        let Some(needed) = self.needed(role)? else { return Ok(()) };
        let has_token = headers.contains_key(header::AUTHORIZATION);
        let place = if has_token { self.wrong.enter(client) } else { None };
        if has_token && place.is_none() {
            self.meter.refused(TokenRefusal::TooManyWrong);
            return Err(AdminRefusal::TooManyWrong);
        }
        let AdminAccess { token_file, operator_token_file, .. } = &self.access;
        let is_viewer = self.is_presented(TOKEN_FILE, token_file.as_ref(), headers).await?;
        let is_operator =
            self.is_presented(OPERATOR_TOKEN_FILE, operator_token_file.as_ref(), headers).await?;
        let is_allowed = match needed {
            NeededToken::Viewer => is_viewer || is_operator,
            NeededToken::Operator => is_operator,
            NeededToken::Own => self.own_token.as_ref().is_some_and(|token| token.is_in(headers)),
        };
        if is_allowed {
            return Ok(());
        }
        if is_viewer {
            self.meter.refused(TokenRefusal::NotOperator);
            return Err(self.lines.refused_action());
        }
        if !has_token {
            self.meter.refused(TokenRefusal::Missing);
            return Err(AdminRefusal::NoToken(needed));
        }
        self.meter.refused(TokenRefusal::Wrong);
        self.lines.wrong_token(client);
        tokio::time::sleep(WRONG_ANSWERED_AFTER).await;
        drop(place);
        Err(AdminRefusal::WrongToken(needed))
    }

    /// The token that a role needs; `None` if it needs none.
    fn needed(&self, role: AdminRole) -> Result<Option<NeededToken>, AdminRefusal> {
        let AdminAccess { token_file, operator_token_file, .. } = &self.access;
        let viewer = token_file.as_ref().map(|_| NeededToken::Viewer);
        let operator = operator_token_file.as_ref().map(|_| NeededToken::Operator);
        match role {
            AdminRole::Anybody => Ok(None),
            AdminRole::Viewer => Ok(viewer),
            AdminRole::Operator => Ok(operator.or(viewer)),
            AdminRole::ValueReader => {
                let own = self.own_token.as_ref().map(|_| NeededToken::Own);
                operator.or(viewer).or(own).map(Some).ok_or(AdminRefusal::NoTokenForValues)
            }
        }
    }

    /// Whether a request presents the token of this file.
    async fn is_presented(
        &self,
        setting: &'static str,
        file: Option<&TokenFile>,
        headers: &HeaderMap,
    ) -> Result<bool, AdminRefusal> {
        let Some(file) = file.cloned() else { return Ok(false) };
        let token = on_blocking_thread(move || file.token()).await.map_err(|error| {
            self.lines.unusable_file(setting, &error);
            AdminRefusal::TokenFile
        })?;
        Ok(token.is_in(headers))
    }
}

impl TokenLines {
    /// A viewer wants to act.
    fn refused_action(&self) -> AdminRefusal {
        if let Some(requests) = self.refused_actions.count() {
            tracing::warn!(requests, "the admin port refused an action: it needs the operator token");
        }
        AdminRefusal::NotOperator
    }

    fn wrong_token(&self, client: IpAddr) {
        if let Some(requests) = self.wrong.count() {
            tracing::warn!(requests, %client, "the admin port refused a wrong token; the client is that of the last one");
        }
    }

    fn unusable_file(&self, setting: &str, error: &FileError) {
        let throttle = match error.fault {
            FileFault::Unusable(_) => &self.malformed,
            _ => &self.unreadable,
        };
        if let Some(requests) = throttle.count() {
            tracing::warn!(requests, setting, %error, "the token file of the admin port cannot be used");
        }
    }
}

impl WrongTokens {
    /// A place until the returned value is dropped; `None` if the address has no more.
    fn enter(&self, client: IpAddr) -> Option<Place<'_>> {
        let mut all = self.0.lock();
        let taken = all.entry(client).or_default();
        (*taken < MOST_WRONG).then(|| {
            *taken += 1;
            Place { tokens: self, client }
        })
    }
}

/// The place of a token.
struct Place<'w> {
    tokens: &'w WrongTokens,
    client: IpAddr,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.tokens.0.lock();
        match all.get_mut(&self.client) {
            Some(1) | None => {
                all.remove(&self.client);
            }
            Some(others) => *others -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::HeaderValue;
    use tokio::task::JoinSet;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    const SELF: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

    fn check_of(own: &str) -> Arc<AccessCheck> {
        let meter = Metrics::new(800_000).expect("metrics").tokens();
        Arc::new(AccessCheck::new(AdminAccess::default(), Some(Token::new(own.to_owned())), meter))
    }

    fn bearer(token: &str) -> HeaderMap {
        let value = HeaderValue::try_from(format!("Bearer {token}")).expect("visible ASCII");
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    /// tokio's time stands still until everybody waits.
    #[tokio::test(start_paused = true)]
    async fn guesses_of_one_address_are_slow_and_delay_no_other_address() {
        let check = check_of("s3cret");
        let mut guesses = JoinSet::new();
        for _ in 0..1_000 {
            let check = Arc::clone(&check);
            guesses.spawn(
                async move { check.check_token(AdminRole::ValueReader, &bearer("guess"), OTHER).await },
            );
        }
        let answer = async |headers: HeaderMap, client| {
            check.check_token(AdminRole::ValueReader, &headers, client).await
        };
        tokio::task::yield_now().await;
        assert_eq!(check.wrong.0.lock().get(&OTHER), Some(&MOST_WRONG));
        assert_eq!(answer(bearer("s3cret"), OTHER).await, Err(AdminRefusal::TooManyWrong));
        let start = tokio::time::Instant::now();
        assert_eq!(answer(bearer("s3cret"), SELF).await, Ok(()));
        assert_eq!(answer(HeaderMap::new(), SELF).await, Err(AdminRefusal::NoToken(NeededToken::Own)));
        assert_eq!(start.elapsed(), Duration::ZERO, "nothing waits but a wrong token");
        let answers = guesses.join_all().await;
        let count = |wanted| answers.iter().filter(|answer| **answer == Err(wanted)).count();
        let wrong = AdminRefusal::WrongToken(NeededToken::Own);
        assert_eq!((count(wrong), count(AdminRefusal::TooManyWrong)), (MOST_WRONG, 1_000 - MOST_WRONG));
        assert_eq!(start.elapsed(), WRONG_ANSWERED_AFTER);
        assert!(check.wrong.0.lock().is_empty(), "nothing is kept of an address");
        assert_eq!(answer(bearer("s3cret"), OTHER).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_keeps_no_place() {
        let check = check_of("s3cret");
        let headers = bearer("guess");
        let guess = check.check_token(AdminRole::ValueReader, &headers, OTHER);
        assert!(tokio::time::timeout(Duration::from_millis(1), guess).await.is_err());
        assert!(check.wrong.0.lock().is_empty());
    }
}
