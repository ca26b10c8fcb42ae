//! Keyboard state: filter, order and selection of the rows.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratelimitd::console::RuleName;

use super::view::{KeyLine, RuleLine, View};

/// A longer filter does not help.
const LONGEST_FILTER: usize = 100;

/// Which rules come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Denied,
    Asked,
}

/// Which rows are shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Screen {
    pub(super) order: Order,
    /// Hides rows that do not contain it.
    pub(super) filter: String,
    /// `true` while typing edits the filter.
    pub(super) is_typing: bool,
    pub(super) only_denying: bool,
    pub(super) is_paused: bool,
    /// Shows only this rule's keys.
    pub(super) chosen_rule: Option<RuleName>,
    /// The selected rule. It stays selected when the rows' order changes.
    pub(super) selected: Option<RuleName>,
}

/// What follows after a key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    Quit,
}

impl Screen {
    /// The shown rules, in order.
    pub(super) fn rules<'v>(&self, view: &'v View) -> Vec<&'v RuleLine> {
        let is_shown = |rule: &&RuleLine| {
            let texts = [&rule.name.rule, &rule.name.domain, &rule.name.kind];
            let is_found = texts.into_iter().any(|text| self.matches(text));
            is_found && (!self.only_denying || rule.denied > 0.0)
        };
        let mut rules: Vec<_> = view.rules.iter().filter(is_shown).collect();
        if self.order == Order::Asked {
            rules.sort_by(|a, b| b.asked.total_cmp(&a.asked));
        }
        rules
    }

    /// The shown keys, most denied first.
    pub(super) fn keys<'v>(&self, view: &'v View) -> Vec<&'v KeyLine> {
        let is_found = |key: &KeyLine| {
            let entries = key.entries.iter().map(|(name, value)| format!("{name}={value}"));
            self.matches(&key.name.rule) || self.matches(&entries.collect::<Vec<_>>().join(" "))
        };
        let of_rule = |key: &KeyLine| self.chosen_rule.as_ref().is_none_or(|rule| *rule == key.name);
        view.keys.iter().filter(|key| of_rule(key) && is_found(key)).collect()
    }

    fn matches(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    pub(super) fn press(&mut self, key: KeyEvent, view: &View) -> Next {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Next::Quit;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Next::GoOn;
        }
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => {
                self.order = match self.order {
                    Order::Denied => Order::Asked,
                    Order::Asked => Order::Denied,
                }
            }
            KeyCode::Char('d') => self.only_denying = !self.only_denying,
            KeyCode::Down => self.move_selection(view, 1),
            KeyCode::Up => self.move_selection(view, -1),
            KeyCode::PageDown => self.move_selection(view, 10),
            KeyCode::PageUp => self.move_selection(view, -10),
            KeyCode::Enter => self.chosen_rule.clone_from(&self.selected),
            KeyCode::Esc => {
                self.chosen_rule = None;
                self.selected = None;
                self.filter.clear();
            }
            _ => {}
        }
        Next::GoOn
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) if self.filter.chars().count() < LONGEST_FILTER => self.filter.push(letter),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
    }

    /// Index of the selected rule among the shown ones.
    pub(super) fn selected_row(&self, rules: &[&RuleLine]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        rules.iter().position(|rule| rule.name == *selected)
    }

    fn move_selection(&mut self, view: &View, rows: isize) {
        let rules = self.rules(view);
        let last = rules.len().saturating_sub(1);
        let row = self.selected_row(&rules).map_or(0, |row| row.saturating_add_signed(rows).min(last));
        self.selected = rules.get(row).map(|rule| rule.name.clone());
    }
}
