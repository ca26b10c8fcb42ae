//! Which token a request to the admin port needs, and whether it presents it. A wrong token is counted, logged, and
//! answered late.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base::log_throttle::LogThrottle;
use base::on_blocking_thread;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use tls::{FileError, FileFault};
use tokio::time::Instant;

use super::admin_access::{
    AdminAccess, AdminRefusal, AdminRole, NeededToken, OPERATOR_TOKEN_FILE, TOKEN_FILE,
};
use super::server::ClientAddress;
use super::token_file::{Token, TokenFile};
use crate::net::admission::network;
use crate::telemetry::metrics::{TokenMeter, TokenRefusal};

/// How late a wrong token is answered.
const WRONG_ANSWERED_AFTER: Duration = Duration::from_secs(1);
/// The tokens of one address that are checked, or that were wrong within the last second: an address has this many
/// guesses a second. Meanwhile it gets no other answer, not even for the right token: it would learn of each guess at
/// once.
const MOST_WRONG: usize = 16;
/// Such tokens of all addresses. They are all of the memory that this check needs.
const MOST_WRONG_OF_ALL: usize = 4_096;

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

/// The places of the tokens that are checked, or that were wrong within the last second.
#[derive(Debug, Default)]
struct WrongTokens(Mutex<Vec<Place>>);

/// The place of a token. It stays taken when the client leaves before the answer: a right token is answered at once, so
/// a client that has no answer yet knows that its token is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// The client's IPv4 address, or its IPv6 network.
    address: IpAddr,
    end: Instant,
}

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
        if !headers.contains_key(header::AUTHORIZATION) {
            let answer = self.check_presented(needed, headers).await;
            return answer.map_err(|refusal| self.without_token(needed, refusal));
        }
        let Some(place) = self.wrong.enter(client, Instant::now()) else {
            self.meter.count(TokenRefusal::TooManyWrong);
            return Err(AdminRefusal::TooManyWrong);
        };
        let answer = self.check_presented(needed, headers).await;
        if answer != Err(AdminRefusal::WrongToken(needed)) {
            self.wrong.leave(place);
            return answer;
        }
        self.meter.count(TokenRefusal::Wrong);
        self.lines.wrong_token(client);
        tokio::time::sleep_until(place.end).await;
        answer
    }

    /// The refusal of a request without a token: a file that cannot be used comes first.
    fn without_token(&self, needed: NeededToken, refusal: AdminRefusal) -> AdminRefusal {
        if refusal != AdminRefusal::WrongToken(needed) {
            return refusal;
        }
        self.meter.count(TokenRefusal::Missing);
        AdminRefusal::NoToken(needed)
    }

    /// Checks the token that a request presents.
    async fn check_presented(&self, needed: NeededToken, headers: &HeaderMap) -> Result<(), AdminRefusal> {
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
            self.meter.count(TokenRefusal::NotOperator);
            return Err(self.lines.refused_action());
        }
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
            tracing::warn!(requests, "admin port rejected an action; it needs the operator token");
        }
        AdminRefusal::NotOperator
    }

    fn wrong_token(&self, client: IpAddr) {
        if let Some(requests) = self.wrong.count() {
            tracing::warn!(requests, %client, "admin port rejected a wrong token");
        }
    }

    fn unusable_file(&self, setting: &str, error: &FileError) {
        let throttle = match error.fault {
            FileFault::Unusable(_) => &self.malformed,
            _ => &self.unreadable,
        };
        if let Some(requests) = throttle.count() {
            tracing::warn!(requests, setting, %error, "cannot use admin token file; rejecting all tokens");
        }
    }
}

impl WrongTokens {
    /// A place for a token that arrives at `now`; `None` if the bounds forbid it.
    fn enter(&self, client: IpAddr, now: Instant) -> Option<Place> {
        let mut taken = self.0.lock();
        taken.retain(|place| place.end > now);
        let address = network(client);
        let of_address = taken.iter().filter(|place| place.address == address).count();
        if of_address >= MOST_WRONG || taken.len() >= MOST_WRONG_OF_ALL {
            return None;
        }
        let place = Place { address, end: now + WRONG_ANSWERED_AFTER };
        taken.push(place);
        Some(place)
    }

    /// The token is not wrong. Places that are equal stand for each other.
    fn leave(&self, place: Place) {
        let mut taken = self.0.lock();
        if let Some(index) = taken.iter().rposition(|other| *other == place) {
            taken.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

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
        assert_eq!(check.wrong.0.lock().len(), MOST_WRONG);
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
        assert_eq!(answer(bearer("s3cret"), OTHER).await, Ok(()));
        assert!(check.wrong.0.lock().is_empty(), "nothing is kept of an address");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_has_no_more_guesses() {
        let check = check_of("s3cret");
        let (right, wrong) = (bearer("s3cret"), bearer("guess"));
        let start = Instant::now();
        for _ in 0..MOST_WRONG {
            let guess = check.check_token(AdminRole::ValueReader, &wrong, OTHER);
            assert!(tokio::time::timeout(Duration::from_millis(1), guess).await.is_err());
        }
        let answer = || check.check_token(AdminRole::ValueReader, &right, OTHER);
        assert_eq!(answer().await, Err(AdminRefusal::TooManyWrong));
        // The first place is free when its second is over.
        tokio::time::sleep_until(start + WRONG_ANSWERED_AFTER).await;
        assert_eq!(answer().await, Ok(()));
    }

    #[test]
    fn places_are_bounded_for_an_address_and_for_all() {
        let (tokens, start) = (WrongTokens::default(), Instant::now());
        let client = |net: usize, host| IpAddr::V6(Ipv6Addr::from_bits(((net as u128) << 64) | host));
        for host in 0..MOST_WRONG {
            assert!(tokens.enter(client(1, host as u128), start).is_some());
        }
        assert_eq!(tokens.enter(client(1, 99), start), None, "another address of the network");
        for net in MOST_WRONG..MOST_WRONG_OF_ALL {
            assert!(tokens.enter(client(1 + net, 0), start).is_some());
        }
        let last = client(1 + MOST_WRONG_OF_ALL, 0);
        assert_eq!(tokens.enter(last, start + WRONG_ANSWERED_AFTER / 2), None);
        assert!(tokens.enter(last, start + WRONG_ANSWERED_AFTER).is_some());
        assert_eq!(tokens.0.lock().len(), 1);
    }
}
