//! What the paths of the admin port let a caller do, and so which token they need.

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminRole {
    /// Open the page of the console, which has no data. A browser cannot send a token when it opens a page.
    Anybody,
    /// See everything but the values of keys.
    Viewer,
    /// Reset counters.
    Operator,
    /// See values of keys: only with a token.
    ValueReader,
}

/// The page of the console. All paths that begin with it are the console's.
pub(super) const CONSOLE_PAGE: &str = "/console";

impl AdminRole {
    /// The role that a path needs.
    pub(super) fn for_path(path: &str) -> Self {
        match path {
            CONSOLE_PAGE => Self::Anybody,
            "/counters/reset" | "/console/reset" => Self::Operator,
            "/console/values" => Self::ValueReader,
            _ => Self::Viewer,
        }
    }
}
