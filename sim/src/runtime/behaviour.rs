//! What a container's process does, read from its command: how long it runs, how it ends, what it makes of SIGTERM.
//!
//! Understood: `sleep N`, `true`, `false`, and `sh -c` with statements of `sleep N`, `exit N`, `true`, `false`,
//! `echo …` (also to the termination file) and `trap '…' TERM`. Everything else runs for ever and ends at SIGTERM.

use std::time::Duration;

/// What a container's process does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Behaviour {
    /// Runs this long; `None` for ever.
    pub runs_for: Option<Duration>,
    /// Exit code when it ends by itself.
    pub exit_code: i32,
    /// What it leaves in its termination file.
    pub message: String,
    /// What it makes of SIGTERM.
    term: Term,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Term {
    /// Dies of it.
    #[default]
    Dies,
    /// Does not hear it.
    Ignored,
    /// Ends with this code after a while.
    Exits(i32, Duration),
}

impl Behaviour {
    /// Reads the behaviour off a command and its arguments.
    #[must_use]
    pub fn of(command: &[String], args: &[String]) -> Self {
        let words: Vec<&str> = command.iter().chain(args).map(String::as_str).collect();
        match words.as_slice() {
            [shell, "-c", script, ..] if is_shell(shell) => Self::of_script(script),
            [] => Self::default(),
            _ => {
                let mut behaviour = Self::default();
                let mut run = Duration::ZERO;
                if let Some(code) = statement(&words, &mut run, &mut behaviour.term) {
                    behaviour.runs_for = Some(run);
                    behaviour.exit_code = code.code();
                }
                behaviour
            }
        }
    }

    /// Exit code at SIGTERM and the time it takes; `None` when it goes on running.
    #[must_use]
    pub fn on_term(&self, default: i32) -> Option<(i32, Duration)> {
        match self.term {
            Term::Dies => Some((default, Duration::ZERO)),
            Term::Ignored => None,
            Term::Exits(code, after) => Some((code, after)),
        }
    }

    fn of_script(script: &str) -> Self {
        let mut behaviour = Self::default();
        let mut run = Duration::ZERO;
        for part in split_statements(script) {
            let words = split_words(&part);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let ["echo", text @ .., ">", "/dev/termination-log"] = words.as_slice() {
                behaviour.message = text.join(" ") + "\n";
            }
            match statement(&words, &mut run, &mut behaviour.term) {
                // Not understood: taken for something that never ends.
                None => return behaviour,
                Some(End::Goes(code)) => behaviour.exit_code = code,
                Some(End::Exits(code)) => {
                    behaviour.exit_code = code;
                    break;
                }
            }
        }
        behaviour.runs_for = Some(run);
        behaviour
    }
}

enum End {
    Goes(i32),
    Exits(i32),
}

impl End {
    const fn code(&self) -> i32 {
        match self {
            Self::Goes(code) | Self::Exits(code) => *code,
        }
    }
}

fn statement(words: &[&str], run: &mut Duration, term: &mut Term) -> Option<End> {
    let words = match words {
        ["exec", rest @ ..] => rest,
        all => all,
    };
    let (first, rest) = words.split_first()?;
    match (first.rsplit('/').next().unwrap_or(first), rest) {
        ("sleep", [time]) => {
            *run += parse_sleep(time)?;
            Some(End::Goes(0))
        }
        ("true" | ":" | "echo", _) => Some(End::Goes(0)),
        ("false", _) => Some(End::Goes(1)),
        ("exit", [code]) => code.parse().ok().map(End::Exits),
        ("exit", []) => Some(End::Exits(0)),
        ("trap", [action, signals @ ..]) => {
            if signals.iter().any(|s| matches!(*s, "TERM" | "SIGTERM" | "15")) {
                *term = trapped(action);
            }
            Some(End::Goes(0))
        }
        _ => None,
    }
}

fn trapped(action: &str) -> Term {
    let mut after = Duration::ZERO;
    for part in split_statements(action) {
        match part.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["sleep", time] => after += parse_sleep(time).unwrap_or_default(),
            ["exit", code] => return code.parse().map_or(Term::Ignored, |code| Term::Exits(code, after)),
            ["exit"] => return Term::Exits(0, after),
            _ => {}
        }
    }
    Term::Ignored
}

fn is_shell(word: &str) -> bool {
    matches!(word.rsplit('/').next(), Some("sh" | "bash" | "ash" | "busybox"))
}

fn parse_sleep(text: &str) -> Option<Duration> {
    let (number, unit) = match text.chars().last()? {
        's' => (&text[..text.len() - 1], 1.0),
        'm' => (&text[..text.len() - 1], 60.0),
        'h' => (&text[..text.len() - 1], 3600.0),
        'd' => (&text[..text.len() - 1], 86_400.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Splits at `;`, `&&` and line ends outside of quotes.
fn split_statements(script: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in script.chars() {
        match (quote, c) {
            (None, ';' | '&' | '\n') => parts.push(String::new()),
            _ => {
                match quote {
                    None if c == '\'' || c == '"' => quote = Some(c),
                    Some(q) if q == c => quote = None,
                    _ => {}
                }
                if let Some(last) = parts.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    parts.retain(|p| !p.trim().is_empty());
    parts
}

/// Splits at spaces outside of quotes and takes the quotes off.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(q) if q == c => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &[&str], expect: (Option<u64>, i32, Option<i32>)) {
        let words: Vec<String> = command.iter().map(|w| (*w).to_owned()).collect();
        let behaviour = Behaviour::of(&words, &[]);
        assert_eq!(
            (
                behaviour.runs_for.map(|d| d.as_secs()),
                behaviour.exit_code,
                behaviour.on_term(143).map(|(code, _)| code)
            ),
            expect,
            "{command:?}"
        );
    }

    #[test]
    fn commands_say_how_long_they_run_and_how_they_end() {
        check(&[], (None, 0, Some(143)));
        check(&["sleep", "5"], (Some(5), 0, Some(143)));
        check(&["/bin/sleep", "2m"], (Some(120), 0, Some(143)));
        check(&["sleep", "infinity"], (None, 0, Some(143)));
        check(&["true"], (Some(0), 0, Some(143)));
        check(&["false"], (Some(0), 1, Some(143)));
        check(&["sh", "-c", "exit 3"], (Some(0), 3, Some(143)));
        check(&["sh", "-c", "sleep 4; exit 7"], (Some(4), 7, Some(143)));
        check(&["sh", "-c", "sleep 1 && sleep 2"], (Some(3), 0, Some(143)));
        check(&["nginx"], (None, 0, Some(143)));
        check(&["sh", "-c", "while :; do sleep 1; done"], (None, 0, Some(143)));
    }

    #[test]
    fn traps_say_what_becomes_of_sigterm() {
        check(&["sh", "-c", "trap '' TERM; sleep 9"], (Some(9), 0, None));
        check(&["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"], (None, 0, Some(0)));
        check(&["sh", "-c", "trap 'exit 0' INT; sleep 9"], (Some(9), 0, Some(143)));
        let slow = Behaviour::of(&["sh".into(), "-c".into(), "trap 'sleep 3; exit 4' TERM; serve".into()], &[]);
        assert_eq!(slow.on_term(143), Some((4, Duration::from_secs(3))));
    }
}
