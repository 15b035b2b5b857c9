//! Completions: text continued as it is.

mod support;

use serde_json::{Value, json};
use support::{events, post, router, send};

const PATH: &str = "/v1/completions";

async fn complete(answer: &str, body: &Value) -> Value {
    let reply = send(&router(answer), post(PATH, body.to_string())).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.text);
    reply.json()
}

/// The choices and the usage that a client puts together from a stream.
async fn streamed(answer: &str, body: &Value) -> (Value, Value) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let reply = send(&router(answer), post(PATH, body.to_string())).await;
    let events = events(&reply.text);
    assert_eq!(events.last(), Some(&json!("[DONE]")), "{}", reply.text);
    let mut choices: Vec<Value> = Vec::new();
    let mut usage = Value::Null;
    for event in &events {
        for piece in event["choices"].as_array().into_iter().flatten() {
            let i = usize::try_from(piece["index"].as_u64().expect("an index")).expect("small");
            while choices.len() <= i {
                choices.push(json!({"index": choices.len(), "text": "", "logprobs": null, "finish_reason": null}));
            }
            let text = choices[i]["text"].as_str().expect("text").to_owned();
            choices[i]["text"] = json!(text + piece["text"].as_str().expect("text"));
            if let Some(more) = piece["logprobs"].as_object() {
                for (key, list) in more {
                    let mut all =
                        choices[i]["logprobs"][key].as_array().cloned().unwrap_or_default();
                    all.extend(list.as_array().expect("a list").iter().cloned());
                    choices[i]["logprobs"][key] = json!(all);
                }
            }
            if piece["finish_reason"].is_string() {
                choices[i]["finish_reason"] = piece["finish_reason"].clone();
            }
        }
        if event["usage"].is_object() {
            usage = event["usage"].clone();
        }
    }
    (json!(choices), usage)
}

#[tokio::test]
async fn text_is_continued_and_sixteen_tokens_are_the_default() {
    let answer = complete("Hello, world", &json!({"prompt": "Say"})).await;
    assert_eq!(answer["object"], "text_completion");
    assert!(answer["id"].as_str().expect("an id").starts_with("cmpl-"));
    assert_eq!(answer["choices"][0]["text"], "Hello, world");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["choices"][0]["logprobs"], Value::Null);
    assert_eq!(answer["usage"]["prompt_tokens"], 3, "bytes are tokens here");
    let long = complete(&"x".repeat(40), &json!({"prompt": "Say"})).await;
    assert_eq!(long["choices"][0]["text"], "x".repeat(16));
    assert_eq!(long["choices"][0]["finish_reason"], "length");
    let tags =
        complete("<think>a</think><tool_call>", &json!({"prompt": "Say", "max_tokens": 99})).await;
    assert_eq!(tags["choices"][0]["text"], "<think>a</think><tool_call>", "nothing is parsed");
}

#[tokio::test]
async fn several_prompts_have_several_answers() {
    for prompt in [json!(["a", "bc"]), json!([[1], [2, 3]]), json!(["a", [2, 3]])] {
        let answer = complete("Hi", &json!({"prompt": prompt, "n": 2})).await;
        let choices = answer["choices"].as_array().expect("a list");
        assert_eq!(choices.len(), 4, "{prompt}");
        assert!(choices.iter().enumerate().all(|(i, c)| c["index"] == i && c["text"] == "Hi"));
        assert_eq!(answer["usage"]["prompt_tokens"], 3, "each prompt once");
    }
}

#[tokio::test]
async fn the_prompt_is_returned_where_asked_for() {
    for (prompt, text) in [(json!("Say "), "Say Hi"), (json!([83, 97]), "SaHi")] {
        let answer = complete("Hi", &json!({"prompt": prompt, "echo": true})).await;
        assert_eq!(answer["choices"][0]["text"], text);
    }
    let answer = complete("Hi", &json!({"prompt": "Say", "echo": true, "max_tokens": 0})).await;
    assert_eq!(answer["choices"][0]["text"], "Say");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 0);
}

/// What evaluation harnesses ask for.
#[tokio::test]
async fn log_probabilities_of_the_prompt_are_returned() {
    let body =
        json!({"prompt": "Säy", "echo": true, "max_tokens": 1, "logprobs": 2, "temperature": 0});
    let answer = complete("Hello there", &body).await;
    let logprobs = &answer["choices"][0]["logprobs"];
    // "ä" has two bytes, which are tokens here.
    assert_eq!(logprobs["tokens"].as_array().expect("a list").len(), 5, "{answer}");
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    assert_eq!(logprobs["top_logprobs"][0], Value::Null);
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4]));
    assert!(
        logprobs["token_logprobs"].as_array().expect("a list")[1..].iter().all(Value::is_number)
    );
    assert!(logprobs["top_logprobs"][4].is_object());
    let body = json!({"prompt": "Say", "echo": true, "max_tokens": 0, "logprobs": 1});
    let answer = complete("Hello there", &body).await;
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"], json!(["S", "a", "y"]));
    let body = json!({"prompt": "S", "echo": true, "max_tokens": 0, "logprobs": 1});
    let answer = complete("Hello there", &body).await;
    assert_eq!(answer["choices"][0]["logprobs"]["token_logprobs"], json!([null]));
}

#[tokio::test]
async fn streamed_and_complete_answers_agree() {
    for answer in ["Hello.", "ž 漢字 👩‍👩‍👧", "<think>a</think>"] {
        for fields in [
            json!({"prompt": "Say"}),
            json!({"prompt": ["a", "b"], "n": 2, "max_tokens": 3}),
            json!({"prompt": "Say", "logprobs": 2, "max_tokens": 50}),
            json!({"prompt": "Sä", "echo": true, "logprobs": 1, "max_tokens": 50}),
            json!({"prompt": "Say", "echo": true, "max_tokens": 0}),
            json!({"prompt": "Say", "stop": ["l", "a"], "logprobs": 0}),
        ] {
            let complete = complete(answer, &fields).await;
            let (choices, usage) = streamed(answer, &fields).await;
            assert_eq!(complete["choices"], choices, "{answer:?} {fields}");
            assert_eq!(complete["usage"], usage, "{answer:?} {fields}");
        }
    }
}

/// Fields beside a valid prompt, the `param` of their refusal, and a word of it.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, &str)] = &[
    (r#""suffix": "x""#, "suffix", "fills no gaps"),
    (r#""suffix": """#, "suffix", "fills no gaps"),
    (r#""stream": "yes""#, "stream", "a boolean"),
    (r#""stream": 1"#, "stream", "a boolean"),
    (r#""stream_options": {"include_usage": true}"#, "stream_options", "needs `stream`"),
    (r#""stream": true, "stream_options": {"include_usage": 1}"#, "stream_options.include_usage", "a boolean"),
    (r#""stream": true, "stream_options": []"#, "stream_options", "an object"),
    (r#""model": 5"#, "model", "a string"),
    (r#""max_tokens": 0"#, "max_tokens", "at least 1"),
    (r#""max_tokens": 0, "echo": false"#, "max_tokens", "at least 1"),
    (r#""max_tokens": -1"#, "max_tokens", "from 0"),
    (r#""max_tokens": 1.5"#, "max_tokens", "integer"),
    (r#""max_tokens": "10""#, "max_tokens", "integer"),
    (r#""n": 0"#, "n", "from 1 to 8"),
    (r#""n": 9"#, "n", "from 1 to 8"),
    (r#""n": true"#, "n", "integer"),
    (r#""best_of": 2"#, "best_of", "not ranked"),
    (r#""n": 2, "best_of": 1"#, "best_of", "must be `n`"),
    (r#""best_of": "x""#, "best_of", "integer"),
    (r#""echo": "yes""#, "echo", "a boolean"),
    (r#""echo": 0"#, "echo", "a boolean"),
    (r#""logprobs": 21"#, "logprobs", "from 0 to 20"),
    (r#""logprobs": true"#, "logprobs", "integer"),
    (r#""logprobs": -1"#, "logprobs", "from 0"),
    (r#""temperature": -0.1"#, "temperature", "from 0 to 2"),
    (r#""temperature": 2.1"#, "temperature", "is 2.1"),
    (r#""temperature": "hot""#, "temperature", "\"hot\""),
    (r#""temperature": []"#, "temperature", "a number"),
    (r#""top_p": 1.5"#, "top_p", "from 0 to 1"),
    (r#""top_p": -1"#, "top_p", "from 0 to 1"),
    (r#""top_p": "x""#, "top_p", "a number"),
    (r#""top_k": -2"#, "top_k", "-1"),
    (r#""top_k": 2.5"#, "top_k", "integer"),
    (r#""top_k": 5000000000"#, "top_k", "5000000000"),
    (r#""min_p": 2"#, "min_p", "from 0 to 1"),
    (r#""min_p": -0.5"#, "min_p", "from 0 to 1"),
    (r#""presence_penalty": 3"#, "presence_penalty", "from -2 to 2"),
    (r#""presence_penalty": "x""#, "presence_penalty", "a number"),
    (r#""frequency_penalty": -3"#, "frequency_penalty", "from -2 to 2"),
    (r#""frequency_penalty": {}"#, "frequency_penalty", "a number"),
    (r#""repetition_penalty": 0"#, "repetition_penalty", "more than 0"),
    (r#""repetition_penalty": 9"#, "repetition_penalty", "to 2"),
    (r#""seed": 1.5"#, "seed", "an integer"),
    (r#""seed": "x""#, "seed", "number"),
    (r#""logit_bias": [1]"#, "logit_bias", "an object"),
    (r#""logit_bias": {"abc": 1}"#, "logit_bias.abc", "token id"),
    (r#""logit_bias": {"5": 101}"#, "logit_bias.5", "-100 to 100"),
    (r#""logit_bias": {"5": null}"#, "logit_bias.5", "a number"),
    (r#""stop": """#, "stop", "is empty"),
    (r#""stop": 3"#, "stop", "a string or an array"),
    (r#""stop": {}"#, "stop", "a string or an array"),
    (r#""stop": ["a", ""]"#, "stop[1]", "is empty"),
    (r#""stop": ["a", 1]"#, "stop[1]", "a string"),
    (r#""stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]"#, "stop", "16 are allowed"),
    (r#""grammar": """#, "grammar", "is empty"),
    (r#""grammar": []"#, "grammar", "a string"),
    (r#""regex": 1"#, "regex", "a string"),
    (r#""regex": "a", "grammar": "b""#, "regex", "one form"),
    (r#""ignore_eos": 1"#, "ignore_eos", "a boolean"),
    (r#""n": 1, "n": 2"#, "n", "twice"),
];

/// The same for `prompt`.
#[rustfmt::skip]
const PROMPTS: &[(&str, &str, &str)] = &[
    ("null", "prompt", "missing"),
    (r#""""#, "prompt", "is empty"),
    ("[]", "prompt", "is empty"),
    ("5", "prompt", "a string"),
    ("true", "prompt", "a string"),
    ("{}", "prompt", "a string"),
    (r#"{"text": "hi"}"#, "prompt", "a string"),
    (r#"["a", ""]"#, "prompt[1]", "is empty"),
    (r#"["a", null]"#, "prompt[1]", "a string or an array"),
    (r#"["a", 5]"#, "prompt[1]", "a string or an array"),
    (r#"["a", {}]"#, "prompt[1]", "a string or an array"),
    ("[[]]", "prompt[0]", "is empty"),
    ("[[1], []]", "prompt[1]", "is empty"),
    ("[1, -1]", "prompt[1]", "a token id"),
    ("[1, 1.5]", "prompt[1]", "a token id"),
    (r#"[1, "a"]"#, "prompt[1]", "a token id"),
    ("[1, null]", "prompt[1]", "a token id"),
    ("[5000000000]", "prompt[0]", "a token id"),
    ("[[1], [2, true]]", "prompt[1][1]", "a token id"),
    ("[99999]", "prompt", "the vocabulary"),
];

#[tokio::test]
async fn wrong_requests_are_refused_with_the_field_named() {
    let router = router("never reached");
    let many: Vec<_> = (0..65).map(|_| r#""a""#).collect();
    let fields = FIELDS.iter().map(|&(f, p, m)| (format!(r#""prompt": "hi", {f}"#), p, m));
    let prompts = PROMPTS.iter().map(|&(f, p, m)| (format!(r#""prompt": {f}"#), p, m));
    let more = [
        (format!(r#""prompt": [{}]"#, many.join(",")), "prompt", "64 are allowed"),
        (r#""max_tokens": 5"#.to_owned(), "prompt", "missing"),
    ];
    let mut n = 0;
    for (fields, param, mentions) in fields.chain(prompts).chain(more) {
        let body = format!("{{{fields}}}");
        let reply = send(&router, post(PATH, body.clone())).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.text);
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{body}");
        assert_eq!(error["param"], param, "{body}: {error}");
        let message = error["message"].as_str().expect("text");
        assert!(message.contains(mentions), "{body}: `{mentions}` is not in: {message}");
        n += 1;
    }
    assert!(n >= 80, "{n}");
}
