//! `completions` and `man`: what is generated from the definition of the command line.

use crate::cli::{self, CompletionsArgs};
use anyhow::Result;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;

/// The completion script of a shell.
#[must_use]
pub fn completions(args: &CompletionsArgs) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), "redlock-run", &mut script);
    script
}

/// Sections that clap knows nothing of: title, and paragraphs; a paragraph with a tab is a tagged one.
const SECTIONS: &[(&str, &str)] = &[
    ("DESCRIPTION", include_str!("man/description.txt")),
    ("EXIT STATUS", include_str!("man/exit_status.txt")),
    ("ENVIRONMENT", include_str!("man/environment.txt")),
    ("SIGNALS", include_str!("man/signals.txt")),
    ("NOTES", include_str!("man/notes.txt")),
    ("EXAMPLES", include_str!("man/examples.txt")),
    ("BUGS", include_str!("man/bugs.txt")),
    (
        "SEE ALSO",
        "flock(1), timeout(1), env(1), redis-cli(1), signal(7), https://redis.io/docs/latest/develop/use/patterns/distributed-locks/",
    ),
];

/// The manual page.
pub fn man() -> Result<Vec<u8>> {
    let mut page = Vec::new();
    let command = cli::run_command()
        .before_long_help(None::<&str>)
        .after_help(None::<&str>)
        .after_long_help(None::<&str>);
    let man = Man::new(command).title("REDLOCK-RUN").section("1");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis().to_writer(&mut page)?;
    let mut sections = SECTIONS.iter();
    if let Some((title, text)) = sections.next() {
        section(title, text).to_writer(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    for (title, text) in sections {
        section(title, text).to_writer(&mut page)?;
    }
    page.flush()?;
    Ok(page)
}

fn synopsis() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in [
        "[OPTIONS] --key KEY [--] COMMAND [ARG]...",
        "status [--json] [--watch] [OPTIONS] KEY...",
        "completions SHELL",
        "man",
    ] {
        roff.text([bold("redlock-run"), roman(format!(" {line}"))]);
        roff.control("br", []);
    }
    roff
}

/// Paragraphs are separated by empty lines; `term<TAB>text` is a tagged one, and a paragraph whose lines are
/// indented stands as it is.
fn section(title: &str, text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for paragraph in text.trim_end().split("\n\n") {
        if paragraph.starts_with("    ") {
            roff.control("PP", []).control("nf", []).control("RS", ["4"]);
            for line in paragraph.lines() {
                roff.text([roman(line.trim_start_matches("    "))]);
            }
            roff.control("RE", []).control("fi", []);
        } else if let Some((term, text)) = paragraph.split_once('\t') {
            roff.control("TP", []).text([bold(term)]).text([roman(text.replace('\n', " "))]);
        } else {
            roff.control("PP", []).text([roman(paragraph.replace('\n', " "))]);
        }
    }
    roff
}
