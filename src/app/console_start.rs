//! Creates the console of this process: its name, its id, and the key of its tags.

use std::io;
use std::sync::Arc;

use base::clock::{Clock as _, SystemClock};
use engine::{Enforcement, HashKey};
use tokio_rustls::rustls::crypto::ring::default_provider;

use super::AppError;
use crate::console::{Console, ConsoleOptions, Instance, ValuesNeed};
use crate::http::{Token, make_own_token};
use crate::settings::Settings;

/// Random bytes of an instance id.
const ID_BYTES: usize = 4;

/// Returns the token that the service generates for itself; `None` without an admin port or a place to keep it. It is
/// also the key of the tags, so that a key has the same tag after a restart.
///
/// # Errors
/// If the system cannot provide random bytes.
pub(super) fn own_token(settings: &Settings) -> Result<Option<Token>, AppError> {
    let Some(address) = &settings.server.admin.address else { return Ok(None) };
    match make_own_token(address, random()?) {
        Ok(token) => Ok(Some(token)),
        Err(error) => {
            tracing::warn!(
                %error,
                "cannot create the own token; showing key values needs a configured token"
            );
            Ok(None)
        }
    }
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], AppError> {
    let mut bytes = [0; BYTES];
    let filled = default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| io::Error::other("cannot get random bytes from the system"))?;
    Ok(bytes)
}

/// `secret`: the key of secret values. With it all instances have the same tags.
///
/// # Errors
/// If the system cannot provide random bytes.
pub(super) fn make_console(
    settings: &Settings,
    secret: Option<HashKey>,
    own_token: Option<&Token>,
) -> Result<Arc<Console>, AppError> {
    let secret = secret.or_else(|| own_token.map(Token::key));
    let secret = secret.map_or_else(|| Ok(HashKey::new(&random::<32>()?)), Ok::<_, AppError>)?;
    let id = base::hex(&random::<ID_BYTES>()?);
    let admin = &settings.server.admin;
    let needs = match (&admin.access.operator_token_file, &admin.access.token_file) {
        (Some(_), _) => ValuesNeed::OperatorToken,
        (None, Some(_)) => ValuesNeed::Token,
        // The page asks for it as it does for the operators' token.
        (None, None) if own_token.is_some() => ValuesNeed::OperatorToken,
        (None, None) => ValuesNeed::Never,
    };
    let options = ConsoleOptions {
        instance: Instance { name: host_name(), id, started_at: SystemClock.now_us() / 1_000_000 },
        dashboard_url: admin.dashboard_url.clone(),
        needs,
        tag_key: secret.derived("console"),
        is_shadow_mode: settings.enforcement == Enforcement::Shadow,
    };
    Ok(Arc::new(Console::new(options)))
}

pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
