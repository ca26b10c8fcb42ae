//! Makes the console of this process: its name, its id, and the key of its tags.

use std::sync::Arc;

use engine::{Enforcement, HashKey};
use store::clock::{Clock as _, SystemClock};
use tokio_rustls::rustls::crypto::ring::default_provider;

use super::AppError;
use crate::console::{Console, ConsoleOptions, Instance, ValuesNeed};
use crate::settings::Settings;

/// Random bytes of an instance's id.
const ID_BYTES: usize = 4;

/// `secret`: the key of secret values. With it the tags of all instances agree.
///
/// # Errors
/// When the system has no random numbers.
pub(super) fn make_console(settings: &Settings, secret: Option<HashKey>) -> Result<Arc<Console>, AppError> {
    let mut random = [0; 32 + ID_BYTES];
    default_provider().secure_random.fill(&mut random).map_err(|_| AppError::Random)?;
    let secret = secret.unwrap_or_else(|| HashKey::new(&random[ID_BYTES..]));
    let id = random[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
    let admin = &settings.server.admin;
    let needs = match (&admin.access.operator_token_file, &admin.access.token_file) {
        (Some(_), _) => ValuesNeed::OperatorToken,
        (None, Some(_)) => ValuesNeed::Token,
        (None, None) => ValuesNeed::Never,
    };
    let options = ConsoleOptions {
        instance: Instance { name: host_name(), id, started_at: SystemClock.now_us() / 1_000_000 },
        dashboard_url: admin.dashboard_url.clone(),
        exceptions_path: settings.exceptions.as_ref().map(|path| path.display().to_string()),
        needs,
        tag_key: secret.derived("console"),
        is_shadow_mode: settings.enforcement == Enforcement::Shadow,
    };
    Ok(Arc::new(Console::new(options)))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
