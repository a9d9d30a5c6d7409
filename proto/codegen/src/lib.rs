//! Generates the committed Rust code of our `.proto` files, and says where it differs from a folder.
//! Reads `proto/<api>/*.proto`; writes `proto/src/gen/*.rs`. Needs no protobuf compiler on the machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;

/// One API: a folder of `.proto` files and the root among them.
pub struct Api {
    /// Folder below `proto/`.
    pub folder: &'static str,
    /// File that imports all others.
    pub root: &'static str,
    /// Messages that carry secrets; they get no derived `Debug`.
    pub secret: &'static [&'static str],
}

/// All APIs of the node agent.
pub const APIS: &[Api] = &[Api {
    folder: "cri",
    root: "service.proto",
    // Registry credentials, and environment values that may come from Secrets.
    secret: &[".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"],
}];

/// Why generation failed.
#[derive(Debug, thiserror::Error)]
pub enum CodegenError {
    /// A `.proto` file does not compile.
    #[error("compile {path}: {source}")]
    Compile {
        /// The root file.
        path: PathBuf,
        /// What the compiler says.
        source: Box<protox::Error>,
    },
    /// A file or folder could not be read or written.
    #[error("access {path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Compiles one API below `proto_dir`.
pub fn compile(proto_dir: &Path, api: &Api) -> Result<FileDescriptorSet, CodegenError> {
    let folder = proto_dir.join(api.folder);
    compile_file(&folder.join(api.root), &folder)
}

/// Compiles one `.proto` file with its imports.
pub fn compile_file(file: &Path, include: &Path) -> Result<FileDescriptorSet, CodegenError> {
    protox::compile([file], [include])
        .map_err(|source| CodegenError::Compile { path: file.to_path_buf(), source: Box::new(source) })
}

/// Writes the code of all APIs into `out_dir`.
pub fn generate(proto_dir: &Path, out_dir: &Path) -> Result<(), CodegenError> {
    let io = |source| CodegenError::Io { path: out_dir.to_path_buf(), source };
    std::fs::create_dir_all(out_dir).map_err(io)?;
    for api in APIS {
        let builder = tonic_prost_build::configure()
            .out_dir(out_dir)
            // Maps in key order: the same message always gives the same bytes.
            .btree_map(".")
            .bytes(".")
            .skip_debug(api.secret.iter().copied())
            .emit_rerun_if_changed(false);
        builder.compile_fds(compile(proto_dir, api)?).map_err(io)?;
    }
    Ok(())
}

/// Names the generated files that differ between two folders, missing and surplus ones included.
pub fn differences(expected: &Path, found: &Path) -> Result<Vec<String>, CodegenError> {
    let (expected, found) = (read_all(expected)?, read_all(found)?);
    let mut names: Vec<String> = expected
        .iter()
        .filter(|(name, text)| found.get(*name) != Some(text))
        .map(|(name, _)| name.clone())
        .chain(found.keys().filter(|name| !expected.contains_key(*name)).cloned())
        .collect();
    names.sort();
    Ok(names)
}

fn read_all(dir: &Path) -> Result<BTreeMap<String, String>, CodegenError> {
    let io = |source| CodegenError::Io { path: dir.to_path_buf(), source };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text =
                std::fs::read_to_string(&path).map_err(|source| CodegenError::Io { path: path.clone(), source })?;
            files.insert(name, text);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proto_dir() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn committed_code_is_what_the_proto_files_generate() {
        let fresh = tempfile::tempdir().unwrap();
        generate(&proto_dir(), fresh.path()).unwrap();
        let different = differences(fresh.path(), &proto_dir().join("src/gen")).unwrap();
        assert!(different.is_empty(), "run `cargo xtask codegen`, it would change {different:?}");
    }

    #[test]
    fn differences_names_changed_missing_and_surplus_files() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (dir, name, text) in [
            (&a, "same.rs", "1"),
            (&b, "same.rs", "1"),
            (&a, "changed.rs", "1"),
            (&b, "changed.rs", "2"),
            (&a, "missing.rs", "1"),
            (&b, "surplus.rs", "1"),
            (&b, "ignored.txt", "1"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(differences(a.path(), b.path()).unwrap(), ["changed.rs", "missing.rs", "surplus.rs"]);
    }

    #[test]
    fn a_broken_proto_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("broken.proto");
        std::fs::write(&file, "syntax = \"proto3\"; message {").unwrap();
        let error = compile_file(&file, dir.path()).unwrap_err().to_string();
        assert!(error.contains("broken.proto"), "{error}");
    }
}
