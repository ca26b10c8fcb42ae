//! A progress bar for commands that read files for long.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Returns a progress bar on standard error, hidden unless that is a terminal. `template` is for work of a known size,
/// `endless` for any other.
pub fn progress_bar(size: Option<u64>, template: &'static str, endless: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(if size.is_some() { template } else { endless });
    let bar = ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(5));
    bar.with_style(style.expect("a valid template"))
}
