//! The text of a settings file; after a form feed, lines of the environment, `NAME=value`.
//!
//! Holds: the same text gives the same settings or the same error; neither shows a password.

use ratelimitd::cli::load_settings::load_settings_with;
use ratelimitd::settings::{Settings, SettingsError};

const PASSWORD: (&str, &str) = ("RATELIMITD__STORE__REDIS__PASSWORD", "Kq7-password-of-this-target");

/// Loads the settings in `data`.
pub fn run(data: &[u8]) {
    let (text, lines) = match data.iter().position(|&byte| byte == b'\x0c') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &[][..]),
    };
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::io::Write::write_all(&mut file, text).expect("a settings file");
    // The process does not start if a variable is not text.
    let mut variables: Vec<(String, String)> = String::from_utf8_lossy(lines)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    variables.push((PASSWORD.0.to_owned(), PASSWORD.1.to_owned()));
    let load =
        || load_settings_with(Some(file.path()), variables.clone(), None).map(|loaded| loaded.settings);
    check(load(), load());
}

fn check(loaded: Result<Settings, SettingsError>, again: Result<Settings, SettingsError>) {
    let shown = match (loaded, again) {
        (Ok(settings), Ok(again)) => {
            assert_eq!(settings, again);
            format!("{settings:?}")
        }
        (Err(error), Err(again)) => {
            assert_eq!(error.to_string(), again.to_string());
            format!("{error} {error:?}")
        }
        (loaded, again) => panic!("only one of two loads failed: {loaded:?} {again:?}"),
    };
    assert!(!shown.contains(PASSWORD.1), "the password is shown: {shown}");
}
