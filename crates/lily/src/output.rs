//! Results on stdout. A reader that goes away is no failure.

use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{self, Write};

/// Prints one JSON object and a newline.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut text =
        serde_json::to_string_pretty(value).context("the result could not be written as JSON")?;
    text.push('\n');
    print(&text)
}

/// Prints text and flushes it.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("stdout could not be written")
}

/// Whether a failure means only that nobody reads any more.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// "1.65 GB", decimal as disks and the model's cards count.
pub(crate) fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        _ if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        _ if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        _ if n >= 1e3 => format!("{:.1} kB", n / 1e3),
        _ => format!("{n} B"),
    }
}

/// "34.7 B", "13.5 M"
pub(crate) fn count(n: u64) -> String {
    let n = n as f64;
    match n {
        _ if n >= 1e9 => format!("{:.2} B", n / 1e9),
        _ if n >= 1e6 => format!("{:.1} M", n / 1e6),
        _ if n >= 1e3 => format!("{:.1} k", n / 1e3),
        _ => format!("{n}"),
    }
}
