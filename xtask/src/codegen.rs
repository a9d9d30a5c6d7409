//! `cargo xtask codegen [--check]`: writes `proto/src/gen` from our `.proto` files, or says what is out of date.
//! The generator is a crate of its own, so that a normal build compiles no protobuf compiler.

use anyhow::Result;

use crate::run;

/// Generates the code; with `check` writes nothing and fails when the committed code differs.
pub(crate) fn run(check: bool) -> Result<()> {
    let mut args = vec!["run", "--quiet", "--package", "proto-codegen"];
    if check {
        args.extend(["--", "--check"]);
    }
    run::run(run::cargo(&args))
}
