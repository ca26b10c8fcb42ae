//! Applies an xDS server's rules: connects its client with the current rules.

use rules::{self, LoadOptions, Problem, Problems};

use super::active_rules::ActiveRules;
use crate::xds::{Resource, ResourceSink};

/// Maximum problems in the reason sent to the server. The log and the admin page have more.
const MAX_PROBLEMS_TOLD: usize = 10;

/// Applies an xDS server's rules. Calls `on_change` after each change.
pub(super) struct Sink<F> {
    pub(super) active: ActiveRules,
    pub(super) load_options: LoadOptions,
    pub(super) on_change: F,
}

impl<F: Fn() + Send + 'static> ResourceSink for Sink<F> {
    fn replace(&mut self, resources: Vec<Resource>) -> Result<(), String> {
        match rules::load_resources(resources, &self.load_options) {
            Ok(loaded) => {
                self.active.replace(loaded, &self.on_change);
                Ok(())
            }
            Err(problems) => {
                let reason = reason(&problems);
                // Resources that cannot be read do not get a digest.
                self.active.record_failure(problems, "");
                Err(reason)
            }
        }
    }

    fn confirm(&mut self) {
        self.active.confirm();
    }

    fn connection_changed(&self, fault: Option<&str>) {
        self.active.record_connection(fault);
    }
}

/// The first errors, one per line.
fn reason(problems: &Problems) -> String {
    let errors = problems.all().iter().filter(|problem| problem.is_error());
    let told: Vec<String> = errors.take(MAX_PROBLEMS_TOLD).map(Problem::to_string).collect();
    let further = problems.errors().saturating_sub(told.len());
    let more = if further > 0 { format!("\nand {further} more errors") } else { String::new() };
    told.join("\n") + &more
}
