//! `top`: shows in a terminal who is limited now, from the consoles of one or more running services.
//!
//! `feed` reads the streams, `view` merges the instances, and `frame` draws a view.

mod columns;
mod events;
mod feed;
mod frame;
mod screen;
mod sentence;
mod view;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::process::ExitCode;

use base::escaped_json;
use clap::Args;
use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt as _;
use ratatui::DefaultTerminal;
use ratelimitd::cli::output::{end, fail, print, print_error};
use ratelimitd::cli::service_connection::{CONNECTION, block_on};
use ratelimitd::cli::stop_signals::StopSignals;

use self::feed::{News, Update, asked_once, follow};
use self::screen::{Next, Screen};
use self::view::{Contact, InstanceSeen, View};
use super::admin_call::AdminCallArgs;
use super::admin_port::AdminPort;

/// Exit code if an instance does not answer, but another one does.
const SOME_SILENT: u8 = 1;
/// Exit code if no instance answers.
const FAILED: u8 = 2;
/// Width of text that does not go to a terminal.
const TEXT_COLUMNS: u16 = 200;

/// Show who is limited now, by which rule and since when, live in the terminal.
///
/// Reads the console of a running service from its admin port, and changes nothing. With several --admin, adds up rules
/// with the same name and limit, and keys that are shown as equal, which needs the same secrets.key on all instances.
/// If output is not a terminal, implies --once.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  every instance answered, or you left the screen
  1  an instance does not answer
  2  no instance answers, or unwritable output

Keys: q quit, p pause, / filter, s sort, d denying rules or all, arrows choose a rule, Enter its keys, Esc all keys.

Examples:
  ratelimitctl top
  ratelimitctl top --once --rows 5
  ratelimitctl top --json --admin 127.0.0.1:6070 --admin 127.0.0.1:6071
  ratelimitctl top --admin unix:/run/ratelimitd/admin.sock --token-file token")]
pub struct TopArgs {
    /// Admin port of the service: an address like http://127.0.0.1:6070, https:// for TLS, or unix:/path/to/socket;
    /// repeatable
    #[arg(long, help_heading = CONNECTION, value_name = "ADDRESS", default_value = "http://127.0.0.1:6070")]
    admin: Vec<AdminPort>,

    #[command(flatten)]
    call: AdminCallArgs,

    /// Print the numbers once, as text, and exit
    #[arg(long)]
    once: bool,

    /// Print the numbers once, as JSON, and exit
    #[arg(long, conflicts_with = "rows")]
    json: bool,

    /// With --json: keep running, and print a line for each change
    #[arg(long, requires = "json", conflicts_with = "once")]
    follow: bool,

    /// Print at most this number of rules, and of keys
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=200))]
    rows: u16,
}

/// Numbers go to standard output, errors to standard error.
pub fn run(args: &TopArgs) -> ExitCode {
    let is_once = args.once || args.json || !io::stdout().is_terminal();
    let printed = match (args.follow, is_once) {
        (true, _) => block_on(print_changes(args)).flatten().map(|()| ExitCode::SUCCESS),
        (false, true) => block_on(print_once(args)).flatten(),
        (false, false) => {
            return match block_on(show(args)).flatten() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    fail("ratelimitctl top", format_args!("cannot use the terminal: {error}"), FAILED)
                }
            };
        }
    };
    printed.unwrap_or_else(|error| end(Err(error), ExitCode::SUCCESS))
}

async fn print_once(args: &TopArgs) -> io::Result<ExitCode> {
    let view = View::merged(&asked_once(&args.call, &args.admin).await);
    let silent: Vec<_> = view.instances.iter().filter(|instance| instance.error.is_some()).collect();
    for instance in &silent {
        let error = instance.error.as_deref().unwrap_or_default();
        print_error(format_args!("ratelimitctl top: {}: {error}", instance.address));
    }
    let code = match silent.len() {
        0 => ExitCode::SUCCESS,
        count if count < view.instances.len() => ExitCode::from(SOME_SILENT),
        _ => ExitCode::from(FAILED),
    };
    if args.json {
        print(&json_line(&view)?)?;
    } else if silent.len() < view.instances.len() {
        let is_terminal = io::stdout().is_terminal();
        let size = is_terminal.then(crossterm::terminal::size).transpose()?;
        // A terminal without a size reports 0 columns.
        let columns = size.map(|(columns, _)| columns).filter(|columns| *columns > 0).unwrap_or(TEXT_COLUMNS);
        print(&frame::text(&view, usize::from(args.rows), columns))?;
    }
    Ok(code)
}

fn json_line(view: &View) -> io::Result<String> {
    Ok(escaped_json(serde_json::to_string(view)? + "\n"))
}

/// All instances before their first answer.
fn unseen(args: &TopArgs) -> Vec<InstanceSeen> {
    args.admin.iter().map(|port| InstanceSeen::new(port.to_string())).collect()
}

fn apply(seen: &mut [InstanceSeen], update: Update) {
    let instance = &mut seen[update.instance];
    match update.news {
        News::Event(event) => instance.event(event),
        News::Lost { error, wait } => instance.contact = Contact::Lost { error, wait: Some(wait) },
    }
}

/// Prints a line for each change, until a signal arrives or the reader is gone.
async fn print_changes(args: &TopArgs) -> io::Result<()> {
    let mut signals = StopSignals::listen()?;
    let (streams, mut updates) = follow(&args.call, &args.admin);
    let mut streams = pin!(streams);
    let mut seen = unseen(args);
    loop {
        let update = tokio::select! {
            () = &mut streams => return Ok(()),
            () = signals.first() => return Ok(()),
            update = updates.recv() => update,
        };
        let Some(update) = update else { return Ok(()) };
        apply(&mut seen, update);
        // The first line covers all instances.
        if seen.iter().all(|instance| instance.contact != Contact::Connecting) {
            print(&json_line(&View::merged(&seen))?)?;
        }
    }
}

/// Shows the screen until the user leaves it.
async fn show(args: &TopArgs) -> io::Result<()> {
    let mut signals = StopSignals::listen()?;
    // A panic also restores the terminal: ratatui sets a hook.
    let shown = match ratatui::try_init() {
        Ok(mut terminal) => tokio::select! {
            shown = draw_changes(args, &mut terminal) => shown,
            () = signals.first() => Ok(()),
        },
        Err(error) => Err(error),
    };
    let restored = ratatui::try_restore();
    shown.and(restored)
}

async fn draw_changes(args: &TopArgs, terminal: &mut DefaultTerminal) -> io::Result<()> {
    let (streams, mut updates) = follow(&args.call, &args.admin);
    let mut streams = pin!(streams);
    let mut keys = EventStream::new();
    let mut screen = Screen::default();
    let mut seen = unseen(args);
    let mut view = View::merged(&seen);
    loop {
        terminal.draw(|frame| frame::draw(frame, &view, &screen))?;
        tokio::select! {
            () = &mut streams => return Ok(()),
            Some(update) = updates.recv() => apply(&mut seen, update),
            // Without more events the terminal is gone.
            event = keys.next() => match event.transpose()? {
                None => return Ok(()),
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    if screen.press(key, &view) == Next::Quit {
                        return Ok(());
                    }
                }
                // For example, the terminal was resized.
                Some(_) => {}
            },
        }
        if !screen.is_paused {
            view = View::merged(&seen);
        }
    }
}
