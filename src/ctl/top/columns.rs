//! Fits text into a terminal's width.

use base::is_hostile;
use ratatui::text::Span;

/// Minimum width of a text column.
const LEAST_WIDTH: u16 = 8;

/// Terminal columns that a string takes.
fn width_of(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

/// Cuts a string to one line of at most `width` columns. Replaces characters that would break the line or its order.
pub(super) fn cut(text: &str, width: u16) -> String {
    let visible = |letter: char| if is_hostile(letter) { char::REPLACEMENT_CHARACTER } else { letter };
    // Each column has at least one character, except for combining marks.
    let most = usize::from(width) + 1;
    let mut shown: String = text.chars().take(most).map(visible).collect();
    if width_of(&shown) <= width && text.chars().nth(most).is_none() {
        return shown;
    }
    while !shown.is_empty() && width_of(&shown) >= width {
        shown.pop();
    }
    shown + "…"
}

/// Wraps a string to lines of at most `width` columns, between words.
pub(super) fn wrapped(text: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let word = cut(word, width);
        match lines.last_mut() {
            Some(line) if width_of(line).saturating_add(1 + width_of(&word)) <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Returns a table's column widths, each as wide as its widest cell. If that exceeds `width`, the widest of the first
/// `flexible` columns become narrower.
pub(super) fn fitted(rows: &[Vec<String>], flexible: usize, spacing: u16, width: u16) -> Vec<u16> {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| rows.iter().map(|row| width_of(&row[column])).max().unwrap_or_default();
    let mut widths: Vec<u16> = (0..columns).map(widest).collect();
    let gaps = u32::from(spacing) * u32::try_from(columns.saturating_sub(1)).unwrap_or_default();
    let taken: u32 = widths.iter().map(|width| u32::from(*width)).sum();
    for _ in u32::from(width)..taken + gaps {
        match widths[..flexible].iter_mut().max() {
            Some(widest) if *widest > LEAST_WIDTH => *widest -= 1,
            _ => break,
        }
    }
    widths
}
