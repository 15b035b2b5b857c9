//! A hostile header costs memory in proportion to its own length. The peak of the process is what
//! is measured, so this is the only test of its binary.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use lily_weights::Checkpoint;
use std::path::Path;
use support::Files;

/// Peak resident memory in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn refuse(dir: &Path, header: &str) {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    std::fs::write(dir.join("model.safetensors"), &file).unwrap();
    drop(file);
    assert!(Checkpoint::open(dir).is_err());
}

#[test]
fn headers_do_not_multiply() {
    const LEN: usize = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    Files::hf().write(dir.path());
    let entry = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
    let entries: Vec<String> = (0..LEN / 60).map(|i| format!("\"{i:x}\":{entry}")).collect();
    let headers = [
        format!("{{\"a\":{}", "[".repeat(LEN)),
        format!("{{\"a\":{{\"x\":[{}0]}}}}", "[],".repeat(LEN / 3)),
        format!("{{\"__metadata__\":{{\"x\":[{}0]}}}}", "[],".repeat(LEN / 3)),
        format!("{{\"a\":{{\"dtype\":\"U8\",\"shape\":[{}0]}}}}", "1,".repeat(LEN / 2)),
        format!("{{\"a\":{{\"dtype\":\"{}\"}}}}", "F".repeat(LEN)),
        format!("{{{}}}", entries.join(",")),
    ];
    drop(entries);
    // Writing the first one is part of the base.
    refuse(dir.path(), &headers[0]);
    let before = peak_bytes();
    for header in &headers[1..] {
        refuse(dir.path(), header);
    }
    // The copy in this test, the mapped file, the names and entries of the last.
    let grown = peak_bytes() - before;
    assert!(grown < 10 * LEN, "the peak grew by {grown} bytes");
}
