//! What holds for any text, however it is cut.

use super::hazards::{Answer, parse_in, tools};
use super::*;
use proptest::prelude::*;

/// Text made of what the parser looks for.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![
            "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=write>", "<function=now>",
            "<function=unknown>", "<parameter=text>", "<parameter=mode>", "<parameter=tags>",
            "<parameter=x>", "</parameter>", "</function>", "<", "</", "<t", "<function=", "<parameter=",
            ">", "\n", "\n\n", " ", "1", "true", "null", "[1, 2]", "{\"name\": \"now\"}", "{", "}", "\"",
            "\\", "é", "\u{1f642}", "text", "\u{3000}", "`", "```", "```\n", "```xml\n", "\n```", "~~~\n",
            "\n> ", "'", "<function_call>", "</function_call>", "<tools>", "<function name=\"now\">", "[", "]", ",",
        ]).prop_map(String::from),
        // Calls that are nearly right.
        2 => prop::sample::select(vec![
            "<tool_call>\n<function=write>\n<parameter=text>\n", "\n</parameter>\n<parameter=mode>\n",
            "\n</parameter>\n</function>\n</tool_call>", "\n</parameter>\n</function>", "\n</think>\n\n",
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            "```xml\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n```",
            "x <tool_call><function=now></function></tool_call>", "<function=now>\n</function>\n",
        ]).prop_map(String::from),
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// The text cut at these places.
fn cut<'t>(text: &'t str, places: &[usize]) -> Vec<&'t str> {
    let mut bounds: Vec<usize> = places.iter().map(|place| place % (text.len() + 1)).collect();
    bounds.retain(|at| text.is_char_boundary(*at));
    bounds.extend([0, text.len()]);
    bounds.sort_unstable();
    bounds.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn answers_do_not_depend_on_cuts(
        text in nasty(),
        places in prop::collection::vec(0usize..4096, 0..24),
        thinking: bool,
        with_tools: bool,
    ) {
        let whole = parse_in(&[&text], thinking, with_tools);
        prop_assert_eq!(&parse_in(&cut(&text, &places), thinking, with_tools), &whole);
        let mut buffer = [0; 4];
        let chars: Vec<String> =
            text.chars().map(|c| c.encode_utf8(&mut buffer).to_string()).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        prop_assert_eq!(&parse_in(&chars, thinking, with_tools), &whole);
    }

    #[test]
    fn arguments_are_an_object(text in nasty(), n_bytes in 0usize..4096) {
        let end = (0..=n_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let Answer { calls, .. } = parse_in(&[&text[..end.unwrap_or(0)]], false, true);
        for (name, json) in calls {
            prop_assert!(!name.is_empty());
            let value: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
            prop_assert!(value.is_object(), "{}", json);
        }
    }

    #[test]
    fn any_value_comes_back(value in nasty(), after: bool) {
        // What would end the value is not part of it.
        let value = value.replace("</", "< /").replace("<tool_call>", "").replace("\n<p", "\n <p");
        let next = if after { "<parameter=mode>\n1\n</parameter>\n" } else { "" };
        let text = format!(
            "<tool_call>\n<function=write>\n<parameter=text>\n{value}\n</parameter>\n{next}\
             </function>\n</tool_call>"
        );
        let answer = parse_in(&[&text], false, true);
        prop_assert_eq!(answer.calls.len(), 1);
        let arguments: serde_json::Value =
            serde_json::from_str(&answer.calls[0].1).expect("valid JSON");
        prop_assert_eq!(arguments["text"].as_str(), Some(value.as_str()));
    }

    #[test]
    fn without_tools_and_thinking_text_passes(text in nasty()) {
        let text = text.replace("think>", "");
        prop_assert_eq!(parse_in(&[&text], false, false).content, text);
    }

    #[test]
    fn no_text_panics(texts in prop::collection::vec(any::<String>(), 0..8)) {
        let options =
            ParserOptions { starts_in_thinking: true, tools: tools(), parse_tools: true };
        let mut parser = OutputParser::new(options);
        for text in &texts {
            parser.push(text);
        }
        parser.finish();
        parser.push("x");
        parser.finish();
    }
}

#[test]
fn long_values_take_linear_time() {
    let started = std::time::Instant::now();
    for name in ["text", "meta"] {
        let options =
            ParserOptions { starts_in_thinking: false, tools: tools(), parse_tools: true };
        let mut parser = OutputParser::new(options);
        parser.push(&format!("<tool_call><function=write><parameter={name}>"));
        for _ in 0..100_000 {
            parser.push("a < b\n");
        }
        parser.finish();
    }
    assert!(started.elapsed().as_secs() < 20);
}
