//! `cargo xtask`: every task of the project, each in its own file.
//!
//! Reads the command line, picks the task, prints its failure in one line. CI calls only `cargo xtask test`.

mod cases;
mod checks;
mod codegen;
mod conformance;
mod golden;
mod install;
mod lab;
mod race;
mod run;
mod rungs;
mod step;
mod test;
mod tidy;
mod up;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  up [PATH…] [--runtime-endpoint URL]      the example pods, or those of PATH, live on a private containerd or on URL
  test [--only STEP[,STEP]] [-- FILTER]   everything CI runs; --only picks steps by name
  test --reference [--cluster] [-- FILTER]  the acceptance cases on ticklet and on the reference kubelet, as a table
  conformance [GROUP…] [--kubelet reference] [--focus REGEX] [--procs N] [--ticklet PATH] [--hold] [--record] [--from DIR]
                                          the official suite: conformance node storage e2e-node, compared with the reference
  tidy                                    structure of the repository: layers, heads, sizes, words, licences
  codegen [--check]                       generate the CRI types from `proto/cri`, or compare them
  golden                                  record the golden trace anew, for a decision changed on purpose
  lab [containerd2|containerd1]           a private containerd with images, until Ctrl-C
  race [probes|api] [--kubelet PATH] [--ticklet PATH] [--pods 500] [--runs 1] [--steady 60] [--only NAME] [--json FILE] [--keep]
                                          ticklet against the reference kubelet on the simulated runtime,
                                          with probes, or with 300 pods from a real API server
  tools                                   build the test tools (containerd 2.x, crictl) into the user's cache
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match args.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("help", &[][..]),
    };
    let result = match task {
        "test" => test::task(rest),
        "tidy" => tidy::task(),
        "codegen" => codegen::run(rest.iter().any(|arg| arg == "--check")),
        "conformance" => conformance::task(rest),
        "golden" => golden::task(),
        "lab" => lab::task(rest),
        "race" => race::task(rest),
        "tools" => install::tools(),
        "up" => up::task(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(anyhow::anyhow!("no task `{other}`\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
