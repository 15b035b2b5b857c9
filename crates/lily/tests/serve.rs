//! The server as a process: where it listens and how it ends.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// `HOST:PORT`
    address: String,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lily"))
            .args(["serve", "--port", "0", "--threads", "1"])
            .args(flags)
            .env_remove("LILY_LOG")
            .env_remove("LILY_API_KEY")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("lily starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let line = wait_for(&mut stderr, "listening on http://");
        let address = line.split("http://").nth(1).expect("an address");
        let end = address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':');
        let address = address[..end.unwrap_or(address.len())].to_owned();
        Self { child, stderr, address }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Sends a request and returns its connection.
    fn request(&self, head: &str, body: &str) -> BufReader<TcpStream> {
        self.request_with(head, "x: y", body)
    }

    /// The same with a header.
    fn request_with(&self, head: &str, header: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(
            stream,
            "{head} HTTP/1.1\r\nhost: localhost\r\n{header}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        BufReader::new(stream)
    }

    /// A stream of as many tokens as asked for: its end tokens are forbidden. Returns after the
    /// first one.
    fn stream(&self, n_tokens: usize) -> BufReader<TcpStream> {
        let body = format!(
            r#"{{"model": "demo", "stream": true, "max_tokens": {n_tokens},
                "messages": [{{"role": "user", "content": "Hello!"}}],
                "logit_bias": {{"4070": -100, "4072": -100}}}}"#
        );
        let mut stream = self.request("POST /v1/chat/completions", &body);
        wait_for(&mut stream, "data: ");
        stream
    }

    /// Waits for the end.
    fn end(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("UTF-8");
        (self.child.wait().expect("it ends"), said)
    }
}

/// The first line with these words.
fn wait_for(lines: &mut impl BufRead, words: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        let n = lines.read_line(&mut line).expect("UTF-8");
        assert!(n > 0, "it ended before `{words}`: {seen}");
        if line.contains(words) {
            return line;
        }
        seen += &line;
    }
}

fn rest(mut stream: BufReader<TcpStream>) -> String {
    let mut text = String::new();
    // A connection that is cut has an end as well.
    let _ = stream.read_to_string(&mut text);
    text
}

#[test]
fn it_says_where_it_listens_and_ends_at_a_signal() {
    for signal in ["-INT", "-TERM"] {
        let server = Server::start(&[]);
        assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
        assert!(rest(server.request("GET /health", "")).starts_with("HTTP/1.1 200"));
        server.signal(signal);
        let (status, said) = server.end();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(said.contains("/v1") && said.contains("stopped"), "{said}");
    }
}

#[test]
fn json_tells_the_address_on_stdout() {
    let mut server = Server::start(&["--json", "--name", "flower"]);
    let address = server.address.clone();
    let mut stdout = server.child.stdout.take().expect("piped");
    server.signal("-INT");
    assert_eq!(server.end().0.code(), Some(0));
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("UTF-8");
    let value: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(value["url"], format!("http://{address}"));
    assert_eq!(value["base_url"], format!("http://{address}/v1"));
    assert_eq!(value["model"], "flower");
}

#[test]
fn a_json_log_has_nothing_else_in_it() {
    let server = Server::start(&["--log-json"]);
    assert!(rest(server.stream(3)).contains("[DONE]"));
    server.signal("-INT");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0));
    for line in said.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let server = Server::start(&[]);
    let port = server.address.rsplit(':').next().expect("a port");
    let second = Command::new(env!("CARGO_BIN_EXE_lily"))
        .args(["serve", "--port", port])
        .stdin(Stdio::null())
        .output()
        .expect("lily runs");
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains(&server.address) && said.contains("--port"), "{said}");
    server.signal("-INT");
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn the_first_signal_lets_answers_finish() {
    let server = Server::start(&[]);
    let stream = server.stream(100);
    server.signal("-TERM");
    let answer = rest(stream);
    assert!(answer.contains("[DONE]"), "{answer}");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("finishing the running answers"), "{said}");
}

#[test]
fn the_second_signal_stops_at_once() {
    let mut server = Server::start(&[]);
    // Thousands of tokens take seconds.
    let stream = server.stream(4_000);
    server.signal("-INT");
    wait_for(&mut server.stderr, "finishing the running answers");
    server.signal("-INT");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("stopping at once"), "{said}");
    assert!(!rest(stream).contains("[DONE]"));
}

/// What `lily serve` says when it refuses to start.
fn refusal(flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lily"))
        .args(["serve", "--port", "0"])
        .args(flags)
        .env_remove("LILY_API_KEY")
        .output()
        .expect("lily starts");
    assert_eq!(output.status.code(), Some(1), "{flags:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn others_need_a_key() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("keys");
    let path = file.to_str().expect("UTF-8");
    let said = refusal(&["--host", "0.0.0.0"]);
    assert!(said.contains("--api-key-file") && said.contains("--allow-anyone"), "{said}");
    assert!(refusal(&["--api-key-file", path]).contains(path));
    std::fs::write(&file, "# nothing\n\n").expect("written");
    assert!(refusal(&["--api-key-file", path]).contains("no key"));
    assert!(refusal(&["--api-key", "short"]).contains("8 to 1024"));
    assert!(refusal(&["--cors-origin", "app.example"]).contains("https://app.example"));
    std::fs::write(&file, "# ours\n a-key-of-one \n\na-key-of-two\n").expect("written");
    let server = Server::start(&["--host", "0.0.0.0", "--api-key-file", path]);
    let models = |key: &str| {
        let header = format!("authorization: Bearer {key}");
        rest(server.request_with("GET /v1/models", &header, ""))
    };
    assert!(models("a-key-of-two").starts_with("HTTP/1.1 200"), "{}", models("a-key-of-two"));
    assert!(models("a-key").starts_with("HTTP/1.1 401"));
    server.signal("-INT");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("a-key-of-two"), "keys are in no log: {said}");
}

#[test]
fn a_trace_has_what_a_report_needs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("trace.jsonl");
    let server = Server::start(&["--trace", file.to_str().expect("UTF-8")]);
    assert!(rest(server.stream(3)).contains("[DONE]"));
    server.signal("-INT");
    assert_eq!(server.end().0.code(), Some(0));
    let text = std::fs::read_to_string(&file).expect("written");
    let record: serde_json::Value = serde_json::from_str(text.trim()).expect("one line");
    assert!(record["prompt"].as_str().expect("text").contains("<|im_start|>user\nHello!"));
    assert_eq!(record["finish_reason"], "length");
    assert_eq!(record["token_ids"].as_array().expect("a list").len(), 3);
    assert!(!record["raw"].as_str().expect("text").is_empty());
    let said = refusal(&["--trace", "/no/such/folder/trace"]);
    assert!(said.contains("/no/such/folder/trace"), "{said}");
}
