//! Rules that no compiler checks: who may import whom, and how long a file may be.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The import table of ARCHITECTURE.md. An edge that is not here is an error.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("lily-device", &[]),
    ("lily-weights", &[]),
    ("lily-text", &[]),
    ("lily-cpu", &["lily-weights"]),
    ("lily-model", &["lily-device", "lily-cpu", "lily-weights"]),
    ("lily-engine", &["lily-model", "lily-text"]),
    ("lily-server", &["lily-engine", "lily-text"]),
    (
        "lily",
        &[
            "lily-cpu",
            "lily-device",
            "lily-engine",
            "lily-model",
            "lily-server",
            "lily-text",
            "lily-weights",
        ],
    ),
    // Tests alone depend on it.
    ("lily-fixtures", &["lily-weights"]),
    ("xtask", &[]),
];

/// Longer files hold more than one idea.
const MAX_FILE_LINES: usize = 800;

/// Unfinished business that must not land. Split so that this file does not match itself.
const MARKERS: &[&str] = &[
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Checks everything and reports every fault, not only the first.
pub(crate) fn run() -> Result<()> {
    let root = workspace_root();
    let mut faults = imports(&root)?;
    for file in tracked_files(&root)? {
        faults.extend(file_faults(&root, &file)?);
    }
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    println!("xtask lint: imports, file sizes and markers are as they should be");
    Ok(())
}

pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace root")
        .to_owned()
}

fn imports(root: &Path) -> Result<Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata could not be started")?;
    ensure!(output.status.success(), "cargo metadata failed; run `cargo fetch` first");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let members: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();

    let mut faults = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package has no name")?;
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(crate_name, _)| *crate_name == name)
        else {
            faults.push(format!("{name}: not in the import table of xtask/src/lint.rs"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        for dependency in dependencies {
            // Tests may look wherever they like; the shipped graph may not.
            if !dependency["kind"].is_null() {
                continue;
            }
            let imported = dependency["name"].as_str().unwrap_or_default();
            if members.contains(imported) && !allowed.contains(&imported) {
                faults.push(format!("{name} imports {imported}; imports point only downwards"));
            }
        }
    }
    Ok(faults)
}

fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output =
        Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context(
            "git could not be started; xtask lint reads the list of tracked files from it",
        )?;
    if !output.status.success() {
        bail!("git ls-files failed in {}", root.display());
    }
    let list = String::from_utf8(output.stdout).context("a tracked file name is not UTF-8")?;
    Ok(list.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

fn file_faults(root: &Path, file: &Path) -> Result<Vec<String>> {
    const SOURCE: &[&str] = &["rs", "metal", "h", "py", "js", "mjs", "ts", "sh"];
    let is_source = file
        .extension()
        .and_then(|e| e.to_str())
        .is_some_and(|extension| SOURCE.contains(&extension));
    let path = root.join(file);
    // A file deleted in the working tree but not yet in the index.
    if !is_source || !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} could not be read", path.display()))?;
    let mut faults = Vec::new();
    let n_lines = text.lines().count();
    if n_lines > MAX_FILE_LINES {
        let name = file.display();
        faults.push(format!("{name}: {n_lines} lines, more than {MAX_FILE_LINES}; split it"));
    }
    for (number, line) in text.lines().enumerate() {
        if let Some(marker) = MARKERS.iter().find(|marker| line.contains(**marker)) {
            faults.push(format!("{}:{}: contains `{marker}`", file.display(), number + 1));
        }
    }
    Ok(faults)
}
