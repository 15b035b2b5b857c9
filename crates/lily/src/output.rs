//! Results on stdout, words to the user on stderr. A reader that goes away is no failure.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Says something to the user on stderr, like `eprintln!`, which would panic if nobody reads.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::say(format_args!($($text)*)) };
}
pub(crate) use note;

pub(crate) fn say(text: Arguments<'_>) {
    // There is no other place to report it.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says what was done: through the log, so that a JSON log has nothing else in it, or directly if
/// the log takes no such lines.
pub(crate) fn status(text: &str) {
    if tracing::enabled!(target: crate::log::SAY, tracing::Level::INFO) {
        tracing::info!(target: crate::log::SAY, "{text}");
    } else {
        note!("{text}");
    }
}

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

/// Writes a file whole or not at all: beside its final place first, so that the last step is a
/// rename within one file system. A path that is a device or a pipe is written as it is.
pub(crate) fn replace_file(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let failed = || format!("{} could not be written", path.display());
    if path.exists() && !path.is_file() {
        let mut out = BufWriter::new(File::create(path).with_context(failed)?);
        fill(&mut out).with_context(failed)?;
        return out.flush().with_context(failed);
    }
    // A link stays a link: what it points to is replaced.
    let path = if path.exists() { path.canonicalize().with_context(failed)? } else { path.into() };
    let temporary = temporary_name(&path)?;
    let written = File::create(&temporary).with_context(failed).and_then(|file| {
        let mut out = BufWriter::new(file);
        fill(&mut out).with_context(failed)?;
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .and_then(|()| std::fs::rename(&temporary, &path))
            .with_context(failed)
    });
    if written.is_err() {
        // It may not exist, and the first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn temporary_name(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("{} names no file", path.display()))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
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

/// "12.3 s", "0.45 s", "4 ms"
pub(crate) fn seconds(s: f64) -> String {
    match s {
        _ if s >= 10.0 => format!("{s:.1} s"),
        _ if s >= 0.1 => format!("{s:.2} s"),
        _ => format!("{:.0} ms", s * 1e3),
    }
}

/// How many per second; 0 if no time passed.
pub(crate) fn rate(n: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(14_400_000), "14.4 MB");
        assert_eq!(bytes(25_280_000_000), "25.28 GB");
        assert_eq!(count(12_100_000), "12.1 M");
        assert_eq!(seconds(0.0042), "4 ms");
        assert_eq!(seconds(0.456), "0.46 s");
        assert_eq!(seconds(75.3), "75.3 s");
        assert!(rate(5, 0.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_file_is_replaced_whole_or_kept() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("x");
        let write = |text: &'static str| {
            move |out: &mut dyn Write| out.write_all(text.as_bytes()).context("unexpected")
        };
        replace_file(&path, write("first")).expect("written");
        replace_file(&path, write("second")).expect("replaced");
        let failed = replace_file(&path, |out| {
            out.write_all(b"thi")?;
            anyhow::bail!("the third breaks off")
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(&path).expect("there"), b"second");
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        std::fs::write(&target, "old").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        replace_file(&link, |out| out.write_all(b"new").context("unexpected")).expect("written");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&target).expect("there"), b"new");

        replace_file(Path::new("/dev/null"), |out| out.write_all(b"x").context("unexpected"))
            .expect("written");
        assert!(!Path::new("/dev/null").is_file());
    }
}
