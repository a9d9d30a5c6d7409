//! ticklet: a drop-in kubelet. Flags alone run the node; a first word is a subcommand.

mod compose;
mod driver;
mod facts;
mod flags;
mod load;
mod recorder;
mod reviews;
mod run;
mod serving;
mod sim_cli;
mod systemd;
mod trace_cli;
mod up;

use clap::Command;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some(word) if !word.starts_with('-') => subcommand(&args),
        _ => run::run(&args),
    }
}

fn subcommand(args: &[String]) -> ExitCode {
    let command = Command::new("ticklet")
        .about("A drop-in kubelet. Without a subcommand it takes the kubelet's flags: see `ticklet --help`")
        .subcommand_required(true)
        .subcommand(up::command())
        .subcommand(sim_cli::command())
        .subcommands(trace_cli::commands())
        .subcommand(Command::new("version").about("Print ticklet's own version and the kubelet's it stands in for"));
    let matches = match command.try_get_matches_from(std::iter::once("ticklet".to_owned()).chain(args.iter().cloned()))
    {
        Ok(matches) => matches,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(1);
            // Help goes to standard output, mistakes to standard error.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match matches.subcommand() {
        Some(("up", args)) => up::run(args).unwrap_or_else(|error| {
            eprintln!("ticklet: {error:#}");
            ExitCode::FAILURE
        }),
        Some(("sim", args)) => sim_cli::run(args),
        Some(("replay", args)) => trace_cli::run_replay(args),
        Some(("trace", args)) => trace_cli::run_trace(args),
        Some(("version", _)) => {
            println!("ticklet {} for Kubernetes {}", env!("CARGO_PKG_VERSION"), flags::KUBERNETES_VERSION);
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}
