//! Draws the screen: a head of lines, the table of rules, and the table of denied keys. A terminal also has a line of
//! keyboard commands; as text the screen is as high as its rows.

use std::time::Duration;

use base::{readable_duration, with_commas};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{HighlightSpacing, Paragraph, Row, StatefulWidget, Table, TableState, Widget as _};
use ratelimitd::console::{Level, SECONDS, clock};

use super::columns::{cut, fitted, wrapped};
use super::screen::{Order, Screen};
use super::sentence::{
    exceptions_text, is_long_ago, key_text, per_second, rule_of_key_text, rule_text, sentence, share_text,
};
use super::view::{InstanceLine, KeyLine, NoticeLine, RuleLine, View};

/// Maximum line length of prose.
const WIDEST_PROSE: u16 = 120;
/// Narrower screens omit the columns for a rule's last 15 minutes and for the start of denials.
const NARROW: u16 = 80;
/// Narrower screens omit the columns for a rule's limit and for a key's rule.
const NARROWEST: u16 = 70;
/// Maximum columns of the trend.
const TREND_STEPS: usize = 90;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const SPACING: u16 = 2;
const MARK: &str = "> ";

/// Maximum notices on a screen, so that they leave room for the tables; the worst come first.
const MOST_NOTICES: usize = 6;

/// How notices are shown: at full length, or cut to one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notices {
    Whole,
    OneLineEach,
}

/// Renders the view as text, with at most `most_rows` rules and keys.
pub(super) fn text(view: &View, most_rows: usize, width: u16) -> String {
    let screen = Screen::default();
    let rules: Vec<_> = screen.rules(view).into_iter().take(most_rows).collect();
    let keys: Vec<_> = screen.keys(view).into_iter().take(most_rows).collect();
    let head = head(view, &screen, width, Notices::Whole);
    let heights = [head.len() + 1, rules.len().max(1) + 2, keys.len().max(1) + 1].map(height);
    let area = Rect::new(0, 0, width, heights.iter().sum());
    let mut buffer = Buffer::empty(area);
    let [head_area, rules_area, keys_area] = Layout::vertical(heights.map(Constraint::Length)).areas(area);
    Paragraph::new(head).render(head_area, &mut buffer);
    render_rules(view, &rules, Selection::default(), rules_area, &mut buffer);
    render_keys(view, &keys, keys_area, &mut buffer);
    buffer_text(&buffer)
}

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, screen: &Screen) {
    let area = frame.area();
    let (rules, keys) = (screen.rules(view), screen.keys(view));
    let head = head(view, screen, area.width, Notices::OneLineEach);
    let [head_area, rules_area, keys_area, foot_area] = Layout::vertical([
        Constraint::Length(height(head.len() + 1)),
        Constraint::Length(height(rules.len().max(1) + 2).min(area.height / 2)),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(head), head_area);
    let selection = Selection { mark: MARK, row: screen.selected_row(&rules) };
    render_rules(view, &rules, selection, rules_area, frame.buffer_mut());
    render_keys(view, &keys, keys_area, frame.buffer_mut());
    frame.render_widget(foot(screen, area.width), foot_area);
}

/// Clamps to the maximum height of a screen.
fn height(lines: usize) -> u16 {
    u16::try_from(lines).unwrap_or(u16::MAX)
}

fn head(view: &View, screen: &Screen, width: u16, notices: Notices) -> Vec<Line<'static>> {
    let prose = |text: &str| wrapped(text, width.min(WIDEST_PROSE)).into_iter();
    let styled = |text: &str, style: Style| -> Vec<Line<'static>> {
        match notices {
            Notices::Whole => prose(text).map(|row| Line::styled(row, style)).collect(),
            Notices::OneLineEach => vec![Line::styled(cut(text, width), style)],
        }
    };
    let most = if notices == Notices::Whole { usize::MAX } else { MOST_NOTICES };
    let mut lines = vec![Line::from(cut(&title(view, screen), width)).bold()];
    let contacts = view.instances.iter().filter_map(contact_text).take(most);
    lines.extend(contacts.flat_map(|text| styled(&text, Style::new().red())));
    if view.instances.iter().any(|instance| instance.is_counted) {
        lines.extend(prose(&sentence(view)).map(Line::from));
        for line in view.notices.iter().take(most) {
            let style = match line.notice.level {
                Level::Bad => Style::new().red(),
                Level::Warn => Style::new().yellow(),
                Level::Plain => Style::new(),
            };
            lines.extend(styled(&notice_text(view, line), style));
        }
        let live = view.live.as_ref().map(|live| format!("{}.", live.text)).filter(|text| text != ".");
        let exceptions = exceptions_text(&view.exceptions).into_iter().chain(live);
        lines.extend(exceptions.flat_map(|text| prose(&text)).map(Line::from));
        lines.extend(numbers(view, width).into_iter().map(Line::from));
        lines.push(Line::from(trend(view, width)));
    }
    lines
}

fn title(view: &View, screen: &Screen) -> String {
    let answers = |instance: &&InstanceLine| instance.error.is_none() && instance.name.is_some();
    let who = match view.instances.as_slice() {
        [only] => {
            let name = only.name.as_ref().unwrap_or(&only.address);
            let version = only.version.as_ref().map(|version| format!("  {version}")).unwrap_or_default();
            let up = only.started_at.map(|started_at| view.end.saturating_sub(started_at));
            let up = up.map(|seconds| format!("  up {}", readable_duration(Duration::from_secs(seconds))));
            let readiness = match (&only.error, &only.name) {
                (Some(_), _) => "no answer",
                (None, None) => "connecting",
                (None, Some(_)) if only.reasons.is_empty() => "ready",
                (None, Some(_)) => "not ready",
            };
            format!("{name}  {readiness}{version}{}  this process only", up.unwrap_or_default())
        }
        all => format!("{} of {} instances", all.iter().filter(answers).count(), all.len()),
    };
    let time = if view.end > 0 { format!("{} UTC  ", clock(view.end)) } else { String::new() };
    let pause = if screen.is_paused { "PAUSED  " } else { "" };
    format!("ratelimitctl top  {time}{pause}{who}")
}

/// Why an instance is not counted.
fn contact_text(instance: &InstanceLine) -> Option<String> {
    let address = &instance.address;
    let name = instance.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    if let Some(other) = &instance.same_as {
        return Some(format!("▲ {address}{name} is the same process as {other}: it is counted once."));
    }
    let error = instance.error.as_ref()?;
    let stale = if instance.is_counted { " Showing the last numbers." } else { "" };
    let wait = instance.wait.map(|wait| format!(" Retrying within {} s.", wait.as_secs()));
    Some(format!("■ {address}{name} does not answer: {error}.{stale}{}", wait.unwrap_or_default()))
}

fn notice_text(view: &View, line: &NoticeLine) -> String {
    let NoticeLine { notice, instance } = line;
    let parts = [&notice.title, &notice.text, &notice.fix].into_iter().filter(|part| !part.is_empty());
    let sentences = parts.map(|part| if part.ends_with('.') { part.clone() } else { format!("{part}.") });
    let text = sentences.collect::<Vec<_>>().join(" ");
    if view.instances.len() > 1 { format!("{text} ({instance})") } else { text }
}

/// The rates and percentiles, on as many lines as they need.
fn numbers(view: &View, width: u16) -> Vec<String> {
    let rates = &view.per_second;
    let rate = |name: &str, rate: f64| format!("{name} {}/s", per_second(rate));
    let percentile = |name: &str, us: Option<u64>| {
        format!("{name} {}", us.map_or("–".to_owned(), |us| readable_duration(Duration::from_micros(us))))
    };
    let mut items = vec![
        rate("requests", rates.requests),
        rate("denied", rates.denied),
        rate("would deny", rates.shadow),
        rate("by policy", rates.policy),
        rate("no decision", rates.failed),
        percentile("p99", view.p99_us),
    ];
    items.extend(view.redis.map(|redis| match redis.answering {
        0 => "Redis unavailable".to_owned(),
        _ => percentile("Redis p99", view.store_p99_us),
    }));
    // No-break spaces keep each item on one line.
    let items: Vec<_> = items.into_iter().map(|item| item.replace(' ', "\u{a0}") + "\u{a0}\u{a0}").collect();
    let lines = wrapped(&items.join(" "), width).into_iter();
    lines.map(|line| line.replace('\u{a0}', " ").trim_end().to_owned()).collect()
}

/// Denied requests of the last 15 minutes, scaled to the highest step.
fn trend(view: &View, width: u16) -> String {
    const NAME: &str = "denied, 15 min  ";
    let room = usize::from(width).saturating_sub(NAME.len()).clamp(1, TREND_STEPS);
    // From the newest second backwards, so that the last step is complete.
    let steps = view.denied_seconds.rchunks(SECONDS.div_ceil(room)).rev();
    let steps: Vec<u128> =
        steps.map(|seconds| seconds.iter().map(|count| u128::from(*count)).sum()).collect();
    let highest = steps.iter().copied().max().unwrap_or_default().max(1);
    let bar = |step: u128| LEVELS[usize::try_from((step * 7).div_ceil(highest)).unwrap_or_default().min(7)];
    steps.into_iter().map(bar).fold(NAME.to_owned(), |mut text, bar| {
        text.push(bar);
        text
    })
}

/// The selected row of a table, and the mark before it.
#[derive(Clone, Copy, Debug, Default)]
struct Selection {
    mark: &'static str,
    row: Option<usize>,
}

fn render_rules(view: &View, rules: &[&RuleLine], selection: Selection, area: Rect, buffer: &mut Buffer) {
    if rules.is_empty() {
        Paragraph::new("No rule to show.").render(area, buffer);
        return;
    }
    let header = ["RULE", "LIMIT", "ASKED/S", "DENIED/S", "SHARE", "15 MIN", "SINCE"];
    let row = |rule: &&RuleLine| {
        let since = rule.since.map_or_else(|| "–".to_owned(), |since| since_text(since, view.end));
        vec![
            rule_text(rule),
            rule.name.limit.clone(),
            per_second(rule.asked),
            per_second(rule.denied),
            share_text(rule.denied, rule.asked),
            with_commas(rule.denied_15m),
            since,
        ]
    };
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(rules.iter().map(row));
    if area.width < NARROW {
        rows.iter_mut().for_each(|row| row.truncate(5));
    }
    let is_red = |place: usize| rules[place].denied > 0.0 && rules[place].is_enforced();
    render_table(rows, is_red, selection, area, buffer);
}

fn since_text(since: u64, end: u64) -> String {
    if is_long_ago(since, end) { "> 15 min".to_owned() } else { clock(since) }
}

fn render_keys(view: &View, keys: &[&KeyLine], area: Rect, buffer: &mut Buffer) {
    if keys.is_empty() {
        Paragraph::new("No key to show that was over a limit.").render(area, buffer);
        return;
    }
    let header = ["KEY", "RULE", "DENIED/S", "OF RULE", "15 MIN"];
    let row = |key: &&KeyLine| {
        let rule = view.rules.iter().find(|rule| rule.name == key.name);
        let denied = rule.map_or(0.0, |rule| rule.denied);
        vec![
            key_text(key),
            rule.map(|rule| rule_of_key_text(rule, key, view.end)).unwrap_or_default(),
            per_second(key.denied),
            share_text(key.denied, denied),
            format!("≥ {}", with_commas(key.denied_15m)),
        ]
    };
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(keys.iter().map(row));
    render_table(rows, |_| false, Selection::default(), area, buffer);
}

/// Draws a header and rows: the first two columns align left, numbers right. A very narrow screen omits the second
/// column.
fn render_table(
    mut texts: Vec<Vec<String>>,
    is_red: impl Fn(usize) -> bool,
    selection: Selection,
    area: Rect,
    buffer: &mut Buffer,
) {
    let is_narrow = area.width < NARROWEST;
    if is_narrow {
        texts.iter_mut().for_each(|row| drop(row.remove(1)));
    }
    let flexible = if is_narrow { 1 } else { 2 };
    let room = area.width.saturating_sub(height(selection.mark.len()));
    let widths = fitted(&texts, flexible, SPACING, room);
    let mut lines = texts.iter().map(|row| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (text, width))| {
            let line = Line::from(cut(text, *width));
            if column < flexible { line } else { line.right_aligned() }
        });
        Row::new(cells.collect::<Vec<_>>())
    });
    let header = lines.next().unwrap_or_default().bold();
    let rows = lines.enumerate().map(|(place, row)| if is_red(place) { row.red() } else { row });
    let table = Table::new(rows, widths.iter().map(|width| Constraint::Length(*width)))
        .header(header)
        .column_spacing(SPACING)
        .highlight_symbol(selection.mark)
        .highlight_spacing(HighlightSpacing::Always)
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(selection.row);
    StatefulWidget::render(table, area, buffer, &mut state);
}

/// The keyboard commands, or the filter.
fn foot(screen: &Screen, width: u16) -> Line<'static> {
    let Screen { filter, order, only_denying, .. } = screen;
    let text = if screen.is_typing {
        format!("filter: {filter}_  Enter keeps it, Esc clears it")
    } else {
        let (order, rules) = match (order, only_denying) {
            (Order::Denied, false) => ("asked", "denying"),
            (Order::Denied, true) => ("asked", "all"),
            (Order::Asked, false) => ("denied", "denying"),
            (Order::Asked, true) => ("denied", "all"),
        };
        let filter = if filter.is_empty() { String::new() } else { format!(" ({filter})") };
        let keys = screen.chosen_rule.as_ref().map(|rule| format!("  keys of {}, Esc: of all", rule.rule));
        let keys = keys.unwrap_or_else(|| "  ↑↓ Enter: keys of a rule".to_owned());
        format!("q quit  p pause  / filter{filter}  s by {order}  d {rules}{keys}")
    };
    Line::from(cut(&text, width)).reversed()
}

/// A buffer as text, without trailing spaces.
fn buffer_text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |y: u16| {
        let mut text = String::new();
        // The cells behind a wide character are part of it.
        let mut hidden = 0;
        for x in 0..area.width {
            let symbol = buffer[(x, y)].symbol();
            if hidden == 0 {
                text.push_str(symbol);
            }
            hidden = Span::raw(symbol).width().max(hidden).saturating_sub(1);
        }
        text.trim_end().to_owned() + "\n"
    };
    (0..area.height).map(line).collect()
}
