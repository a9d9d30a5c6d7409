//! `proto-codegen [--check]`: writes `proto/src/gen`, or only says whether it is up to date.

use std::path::Path;
use std::process::ExitCode;

use proto_codegen::{CodegenError, differences, generate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: proto-codegen [--check]");
            return ExitCode::from(2);
        }
    };
    match run(check) {
        Ok(different) if different.is_empty() => ExitCode::SUCCESS,
        Ok(different) => {
            eprintln!("generated code is out of date, run `cargo xtask codegen`: {}", different.join(", "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("failed to {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the names of files that are out of date; none after writing.
fn run(check: bool) -> Result<Vec<String>, CodegenError> {
    let proto_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let committed = proto_dir.join("src/gen");
    if !check {
        generate(&proto_dir, &committed)?;
        return Ok(Vec::new());
    }
    let io = |source| CodegenError::Io { path: std::env::temp_dir(), source };
    let fresh = std::env::temp_dir().join(format!("proto-codegen-{}", std::process::id()));
    std::fs::create_dir(&fresh).map_err(io)?;
    let different = generate(&proto_dir, &fresh).and_then(|()| differences(&fresh, &committed));
    std::fs::remove_dir_all(&fresh).map_err(io)?;
    different
}
