//! `install-help`: writes man pages and shell completions, generated from the command definitions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use ratelimitd::cli::output::fail;

/// Where the three shells look for PROGRAM's completions, below a prefix such as `/usr/local`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/PROGRAM"),
    (Shell::Zsh, "share/zsh/site-functions/_PROGRAM"),
    (Shell::Fish, "share/fish/vendor_completions.d/PROGRAM.fish"),
];
const MAN_PAGES: &str = "share/man/man1";

/// Install man pages of both programs, and completions for bash, zsh and fish.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  all files written
  1  cannot write a file; the reason is on standard error

Example:
  sudo ratelimitctl install-help /usr/local")]
pub struct InstallHelpArgs {
    /// Install below PREFIX/share: /usr/local, or ~/.local
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
}

/// Writes the files of `programs`, each with its full command line.
pub fn run(args: &InstallHelpArgs, programs: [Command; 2]) -> ExitCode {
    match programs.into_iter().try_for_each(|program| install(&args.prefix, program)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("ratelimitctl install-help", error, 1),
    }
}

fn install(prefix: &Path, program: Command) -> io::Result<()> {
    // `help COMMAND` shows the same pages, so it has none of its own.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let name = program.get_name().to_owned();
    for (shell, path) in COMPLETIONS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut program, &name, &mut text);
        write(&prefix.join(path.replace("PROGRAM", &name)), &text)?;
    }
    man_pages(&prefix.join(MAN_PAGES), &program)
}

/// Writes a command's page, and its subcommands' pages.
fn man_pages(folder: &Path, command: &Command) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    write(&folder.join(format!("{name}.1")), man_page(command)?.as_bytes())?;
    command.get_subcommands().try_for_each(|below| man_pages(folder, below))
}

fn man_page(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone())
        .manual("ratelimitd")
        .source(concat!("ratelimitd ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8(page).map_err(io::Error::other)?;
    // After the options come command lines: man must not fill them into paragraphs.
    Ok(match page.split_once(".SH EXTRA\n") {
        Some((before, examples)) => {
            let (examples, after) =
                examples.split_at(examples.find("\n.SH ").map_or(examples.len(), |at| at + 1));
            format!("{before}.SH EXAMPLES\n.nf\n{examples}.fi\n{after}")
        }
        None => page,
    })
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::create_dir_all(path.parent().unwrap_or(path)).and_then(|()| fs::write(path, text)).map_err(named)
}
