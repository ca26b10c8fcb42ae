//! Describes one environment variable of `envoyproxy/ratelimit`.

/// An environment variable of `envoyproxy/ratelimit`, and its effect in ratelimitd.
#[derive(Clone, Copy, Debug)]
pub struct RatelimitVariable {
    pub name: &'static str,
    /// Default in `envoyproxy/ratelimit`, as it would be written.
    pub default: &'static str,
    /// `true` if docs/migrating.md has it under "Work, with a difference".
    pub differs: bool,
    pub(super) kind: ValueKind,
    pub(super) effect: Effect,
    /// `true` if the variable reveals an environment of `envoyproxy/ratelimit`. Other programs also use the other
    /// names.
    pub(super) is_telling: bool,
    /// `true` if errors must not quote the value.
    pub(super) is_secret: bool,
}

/// Syntax of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Text,
    Flag,
    Whole,
    /// A decimal fraction.
    Decimal,
    Duration,
    List,
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Sets these settings, or one of them. The keys are separated by commas.
    Sets(&'static str),
    /// None, because ratelimitd has nothing that it could change. The reason completes "no meaning here: ...".
    Meaningless(&'static str),
}

impl ValueKind {
    /// Accepted values, for errors.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Flag => "true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)",
            Self::Whole => "a whole number like 8080, 0x1F90 or 1_000",
            Self::Decimal => "a number like 0.8",
            Self::Duration => "a duration like 300ms, 1.5h or 2h45m, with the units ns, us, ms, s, m and h",
            Self::List => "comma-separated strings",
            Self::Map => "comma-separated key:value pairs",
        }
    }

    /// `true` if `envoyproxy/ratelimit` does not start with the empty value.
    pub(super) fn refuses_empty(self) -> bool {
        matches!(self, Self::Flag | Self::Whole | Self::Decimal | Self::Duration)
    }
}

impl RatelimitVariable {
    pub(super) const fn differs(self) -> Self {
        Self { differs: true, ..self }
    }

    pub(super) const fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// The first two cells of its row in docs/migrating.md.
    pub fn documentation(&self) -> String {
        let default = if self.default.is_empty() { String::new() } else { format!(" `{}`", self.default) };
        let ours = match self.effect {
            Effect::Sets(keys) => format!("`{}`", keys.replace(", ", "`, `")),
            Effect::Meaningless(_) => "no meaning here".to_owned(),
        };
        format!("| `{}`{default} | {ours} |", self.name)
    }
}

/// A variable that only `envoyproxy/ratelimit` has.
pub(super) const fn own(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    effect: Effect,
) -> RatelimitVariable {
    RatelimitVariable { name, default, differs: false, kind, effect, is_telling: true, is_secret: false }
}

/// A variable whose name other programs also use.
pub(super) const fn common(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    effect: Effect,
) -> RatelimitVariable {
    RatelimitVariable { is_telling: false, ..own(name, kind, default, effect) }
}
