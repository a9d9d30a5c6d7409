//! `cargo run -p benches --release -- tick [PODS…]`: prints a table, then one line of JSON.

use benches::tick::{Size, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let sizes: Option<Vec<usize>> = args.iter().skip(1).map(|arg| arg.parse().ok().filter(|pods| *pods > 0)).collect();
    let (Some("tick"), Some(mut sizes)) = (args.first().map(String::as_str), sizes) else {
        eprintln!("usage: benches tick [PODS…]");
        return ExitCode::FAILURE;
    };
    if sizes.is_empty() {
        sizes = vec![500, 5000];
    }
    let mut all = Vec::new();
    for pods in sizes {
        let figures = run(Size::of(pods));
        for line in figures.lines() {
            println!("{line}");
        }
        println!("{}", figures.verdict());
        all.push(figures.json());
    }
    println!("{}", serde_json::json!({ "tick": all }));
    ExitCode::SUCCESS
}
