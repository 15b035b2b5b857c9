//! The program as a user runs it, with the demo model.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn lily(args: &[&str]) -> Output {
    lily_with(args, "")
}

/// Runs `lily` with `stdin` piped in.
fn lily_with(args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lily"))
        .args(args)
        .env_remove("LILY_LOG")
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lily starts");
    // A program that reads no input may be gone already.
    let _ = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
    child.wait_with_output().expect("lily ends")
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).expect("UTF-8")
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).expect("UTF-8")
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("one JSON value on stdout")
}

#[test]
fn help_is_stable() {
    for verb in [
        "",
        "chat",
        "serve",
        "bench",
        "eval",
        "eval perplexity",
        "eval logits",
        "eval agreement",
        "inspect",
        "doctor",
        "pull",
        "convert",
    ] {
        let args: Vec<&str> = verb.split_whitespace().chain(["--help"]).collect();
        let output = lily(&args);
        assert!(output.status.success());
        let name = if verb.is_empty() { "lily".to_owned() } else { verb.replace(' ', "_") };
        // Help wraps to the terminal and there is none here, so its lines do not depend on one.
        insta::assert_snapshot!(format!("help_{name}"), stdout(&output));
    }
}

#[test]
fn wrong_use_exits_with_2() {
    for args in [
        &["--no-such-flag"][..],
        &["chat", "--no-such-flag"],
        &["no-such-verb"],
        &[],
        &["serve", "--port", "99999"],
        &["chat", "hi", "--device", "tpu"],
        &["eval", "logits", "--out", "x"],
        &["bench", "--random"],
        &["doctor", "--log", "loud"],
    ] {
        let output = lily(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{args:?}");
    }
}

#[test]
fn failures_exit_with_1_and_say_what_to_do() {
    let empty = tempfile::tempdir().expect("a temporary directory");
    let empty = empty.path().to_str().expect("UTF-8");
    for (args, expected) in [
        (&["chat", "hi", "-m", "/no/such/model"][..], "/no/such/model"),
        (&["chat", "hi", "-m", "no-such-model"], "ORG/NAME"),
        (&["chat", "hi", "-m", "some-org/some-model"], "hf download some-org/some-model"),
        (&["inspect", "-m", empty], "config.json"),
        (&["inspect", "-m", "model.gguf"], "GGUF"),
        (&["chat", "hi", "--ctx", "0"], "--ctx"),
        (&["chat", "hi", "--ctx", "9999999"], "4096"),
        (&["chat", "hi", "--temp", "-1"], "temperature"),
        (&["chat", "hi", "--top-p", "2"], "top_p"),
        (&["chat", "   "], "empty"),
        (&["chat"], "PROMPT"),
        (&["chat", "hi", "--system", "@/no/such/file"], "/no/such/file"),
        (&["eval", "logits", "--ids", "1,99999", "--out", "/tmp/lily-x"], "99999"),
        (&["eval", "logits", "--ids", "1", "--out", "/no/such/dir/x"], "/no/such/dir"),
        (&["eval", "perplexity", "--file", "/no/such/file"], "/no/such/file"),
        (&["serve", "--host", "256.0.0.1"], "256.0.0.1"),
        (&["inspect", "--ctx", "9999999"], "4096"),
        (&["pull", "some-org/some-model"], "hf download some-org/some-model"),
        (&["pull", "a/b@v2"], "hf download a/b --revision v2"),
        (&["convert", "a", "b"], "mlx_lm.convert"),
    ] {
        let output = lily(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{args:?}");
    }
}

/// A device that doctor cannot use is refused by every verb, with what to do instead.
#[test]
fn devices_that_are_not_here_are_refused() {
    let report = json(&lily(&["doctor", "--json"]));
    for device in report["devices"].as_array().expect("a list") {
        let name = device["device"].as_str().expect("a name");
        if device["usable"] == true {
            continue;
        }
        let output = lily(&["chat", "hi", "--device", name]);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", stderr(&output));
        assert!(stderr(&output).contains("--device"), "{name}: {}", stderr(&output));
    }
}

/// The demo in the simulator says what it says on the CPU; kernels are compiled once.
#[test]
fn the_simulator_computes_what_the_cpu_does() {
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let logits = |device: &str| {
        let out = dir.path().join(device);
        let status = Command::new(env!("CARGO_BIN_EXE_lily"))
            .args(["eval", "logits", "--ids", "7,77,777", "--device", device, "--out"])
            .arg(&out)
            .env("XDG_CACHE_HOME", cache)
            .stderr(Stdio::null())
            .status()
            .expect("lily starts");
        assert!(status.success(), "{device}");
        let file = std::fs::read(out).expect("written");
        let header = u64::from_le_bytes(file[..8].try_into().expect("8 bytes"));
        let data = &file[8 + usize::try_from(header).expect("a small header")..];
        let (words, []) = data.as_chunks::<4>() else { panic!("whole floats") };
        words.iter().map(|word| f32::from_le_bytes(*word)).collect::<Vec<f32>>()
    };
    let (sim, cpu) = (logits("sim"), logits("cpu"));
    assert_eq!(sim.len(), 3 * 4096);
    let difference = sim.iter().zip(&cpu).fold(0.0_f32, |max, (a, b)| max.max((a - b).abs()));
    assert!(difference <= 1e-3, "logits differ by {difference:e}");

    // Tokens are drawn on the device, by the same seed.
    let answer = |device: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_lily"))
            .args(["chat", "Hello there!", "--compute", "f32", "--device", device, "--seed", "7"])
            .args(["--temp", "1", "--top-k", "20", "--top-p", "0.95", "--max-tokens", "24"])
            .env("XDG_CACHE_HOME", cache)
            .output()
            .expect("lily starts");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    assert_eq!(answer("sim"), answer("cpu"));

    let output = Command::new(env!("CARGO_BIN_EXE_lily"))
        .args(["doctor", "--device", "sim", "--only", "rms_norm", "--cases", "2"])
        .env("XDG_CACHE_HOME", cache)
        .output()
        .expect("lily starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let summary = stdout(&output).lines().last().expect("a line for a bug report").to_owned();
    assert!(summary.contains("sim") && summary.contains("all green"), "{summary}");
}

#[test]
fn a_prompt_gets_an_answer_on_stdout_alone() {
    let output = lily(&["chat", "What are you?", "--temp", "0"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("demo model"), "{}", stdout(&output));
    // What the engine logs is for servers.
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    // Thinking is no result: nobody watches here, so it is nowhere.
    assert!(!stdout(&output).contains("The user asks"), "{}", stdout(&output));
}

#[test]
fn json_has_the_parts_of_an_answer() {
    let answer = json(&lily(&["chat", "What are you?", "--temp", "0", "--json"]));
    assert!(answer["content"].as_str().is_some_and(|text| text.contains("demo model")));
    assert!(answer["reasoning"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(answer["finish_reason"], "stop");
    assert!(answer["usage"]["completion_tokens"].as_u64().is_some_and(|n| n > 5));

    let plain = json(&lily(&["chat", "What are you?", "--think", "off", "--temp", "0", "--json"]));
    assert_eq!(plain["reasoning"], "");
    assert_eq!(plain["usage"]["reasoning_tokens"], 0);

    let cut = json(&lily(&["chat", "What are you?", "--max-tokens", "3", "--json"]));
    assert_eq!(cut["finish_reason"], "length");
    assert_eq!(cut["usage"]["completion_tokens"], 3);
}

#[test]
fn standard_input_is_the_prompt_or_follows_it() {
    let alone = lily_with(&["chat", "--temp", "0"], "What are you?\n");
    assert!(stdout(&alone).contains("demo model"), "{}", stdout(&alone));
    let text = "The bridge is old. The secret code is 7391. The river is wide.";
    let both = lily_with(&["chat", "What is the secret code?", "--temp", "0"], text);
    assert!(stdout(&both).contains("7391"), "{}", stdout(&both));
}

#[test]
fn a_prompt_that_does_not_fit_says_so() {
    let long = "word ".repeat(9_000);
    let output = lily_with(&["chat"], &long);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("4096"), "{}", stderr(&output));
    assert!(stderr(&output).contains("--ctx"), "{}", stderr(&output));
}

#[test]
fn the_same_seed_repeats_an_answer() {
    let run = |seed: &str| {
        let output = lily(&["chat", "Hello!", "--temp", "1.5", "--top-k", "0", "--seed", seed]);
        stdout(&output).to_owned()
    };
    assert_eq!(run("7"), run("7"));
}

#[test]
fn inspect_and_doctor_print_json() {
    let inspect = json(&lily(&["inspect", "--json", "--ctx", "1000"]));
    assert_eq!(inspect["format"], "mlx-affine");
    assert_eq!(inspect["shape"]["n_layers"], 8);
    assert!(inspect["memory"].as_array().is_some_and(|rows| rows.len() == 2));
    let doctor = json(&lily(&["doctor", "--json"]));
    assert_eq!(doctor["devices"][0]["device"], "cpu");
    assert_eq!(doctor["devices"][0]["usable"], true);
}

#[test]
fn logits_are_written_whole_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path().join("logits.safetensors");
    let out_text = out.to_str().expect("UTF-8");
    let report = json(&lily(&["eval", "logits", "--ids", "1, 2,3", "--out", out_text, "--json"]));
    assert_eq!(report["tokens"], 3);
    let file = std::fs::read(&out).expect("written");
    let header_len = usize::try_from(u64::from_le_bytes(file[..8].try_into().expect("8 bytes")));
    let header_len = header_len.expect("small");
    let header: serde_json::Value =
        serde_json::from_slice(&file[8..8 + header_len]).expect("a JSON header");
    assert_eq!(header["logits"]["shape"], serde_json::json!([3, 4096]));
    assert_eq!(file.len(), 8 + header_len + 3 * 4096 * 4);

    let failed = lily(&["eval", "logits", "--ids", "1,999999", "--out", out_text]);
    assert_eq!(failed.status.code(), Some(1));
    let names: Vec<_> = std::fs::read_dir(dir.path()).expect("readable").flatten().collect();
    assert_eq!(names.len(), 1, "no temporary file stays");
    assert_eq!(std::fs::read(&out).expect("still there"), file, "the old file is untouched");
}

#[test]
fn perplexity_and_agreement_of_a_text() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("text.txt");
    std::fs::write(&path, "What are you? I am Lily's demo model. ".repeat(40)).expect("written");
    let file = path.to_str().expect("UTF-8");
    let report = json(&lily(&["eval", "perplexity", "--file", file, "--json"]));
    let perplexity = report["perplexity"].as_f64().expect("a number");
    assert!(perplexity > 1.0 && perplexity < 4096.0, "{perplexity}");

    let same = json(&lily(&[
        "eval",
        "agreement",
        "--with",
        "demo",
        "--compute",
        "f32",
        "--file",
        file,
        "--json",
    ]));
    assert_eq!(same["top1"], 1.0);
    assert!(same["kl_mean"].as_f64().is_some_and(|kl| kl.abs() < 1e-9));
    let int8 = json(&lily(&["eval", "agreement", "--with", "demo", "--file", file, "--json"]));
    assert!(int8["top1"].as_f64().is_some_and(|share| share > 0.9), "{int8}");
}

#[test]
fn bench_measures_the_demo() {
    let report = json(&lily(&[
        "bench",
        "--prompt",
        "32",
        "--gen",
        "4",
        "--ctx-depth",
        "0,16",
        "--reps",
        "1",
        "--json",
    ]));
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["tokens_per_s_median"].as_f64().is_some_and(|r| r > 0.0)));
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lily"))
        .args(["inspect"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("lily starts");
    drop(child.stdout.take());
    assert!(child.wait().expect("lily ends").success());
}

/// Everything that is said on stderr must survive that nobody reads it.
#[cfg(unix)]
#[test]
fn a_log_that_nobody_reads_is_no_failure() {
    for log in [&["--log", "trace"][..], &["--log", "trace", "--log-json"], &["--log", "off"]] {
        let args = [&["chat", "Hello!", "--temp", "0"], log].concat();
        let mut child = Command::new(env!("CARGO_BIN_EXE_lily"))
            .args(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("lily starts");
        drop(child.stderr.take());
        let output = child.wait_with_output().expect("lily ends");
        assert!(output.status.success(), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_json_log_has_nothing_else_in_it() {
    let output = lily(&["chat", "Hello!", "--log", "debug", "--log-json"]);
    assert!(stderr(&output).lines().count() > 1);
    for line in stderr(&output).lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(value["level"].is_string(), "{line}");
    }
}

#[test]
fn a_model_is_found_in_the_hub_cache() {
    let cache = tempfile::tempdir().expect("a temporary directory");
    let repository = cache.path().join("models--some-org--tiny");
    let snapshot = repository.join("snapshots/0123abcd");
    lily_fixtures::write_mlx4(&snapshot, lily_fixtures::Variant::Small, 1).expect("written");
    std::fs::create_dir_all(repository.join("refs")).expect("made");
    std::fs::write(repository.join("refs/main"), "0123abcd").expect("written");
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_lily"))
            .args(args)
            .env("HF_HUB_CACHE", cache.path())
            .stdin(Stdio::null())
            .output()
            .expect("lily runs")
    };
    let report = json(&run(&["inspect", "-m", "some-org/tiny", "--json"]));
    assert_eq!(report["model"], "some-org/tiny");
    assert_eq!(report["format"], "mlx-affine");
    // The weights alone can be evaluated, but not talked to.
    let chat = run(&["chat", "hi", "-m", "some-org/tiny"]);
    assert_eq!(chat.status.code(), Some(1));
    assert!(stderr(&chat).contains("tokenizer.json"), "{}", stderr(&chat));
    assert!(
        run(&["eval", "logits", "-m", "some-org/tiny", "--ids", "1", "--out", "/dev/null"])
            .status
            .success()
    );
    let other = run(&["inspect", "-m", "some-org/tiny@dev"]);
    assert!(stderr(&other).contains("--revision dev"), "{}", stderr(&other));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named() {
    let output = lily(&["eval", "logits", "--ids", "1,2", "--out", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/dev/full"), "{}", stderr(&output));
    assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
}

#[test]
fn an_answer_cut_short_says_so() {
    let output = lily(&["chat", "What are you?", "--max-tokens", "3"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("--max-tokens"), "{}", stderr(&output));
}

/// Logits do not depend on how a prompt is cut into forward passes. Sums of a matrix product are
/// grouped by its tile, which depends on the number of rows: some units in the last place of
/// values of order ten.
#[test]
fn logits_do_not_depend_on_the_chunk() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let ids: Vec<String> = (0..40_u64).map(|i| (i * 2_654_435_761 % 4_000).to_string()).collect();
    let ids = ids.join(",");
    let logits = |chunk: &str| {
        let path = dir.path().join(chunk);
        let out = path.to_str().expect("UTF-8");
        let run = lily(&["eval", "logits", "--ids", &ids, "--chunk", chunk, "--out", out]);
        assert!(run.status.success(), "{}", stderr(&run));
        let file = std::fs::read(&path).expect("written");
        let values = file[file.len() - 40 * 4096 * 4..].chunks_exact(4);
        values.map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect::<Vec<f32>>()
    };
    let whole = logits("512");
    for chunk in ["1", "7"] {
        let worst = whole.iter().zip(logits(chunk)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{chunk}: {worst}");
    }
}
