//! Templates of any origin: where they come from, and that none of them hangs or panics.

mod support;

use lily_text::{ChatTemplate, Message, RenderOptions, Role, TextError};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn render(source: &str, variables: Value) -> Result<String, TextError> {
    let Value::Object(variables) = variables else { panic!("an object") };
    ChatTemplate::new(source)?.render_variables(&variables)
}

fn check(source: &str, expected: &str) {
    assert_eq!(render(source, json!({})).expect("renders"), expected, "{source}");
}

#[test]
fn values_print_as_in_python() {
    check(
        "{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 3 / 2 }}",
        "True None 1.0 1e+16 1e-05 1.5",
    );
    check("{{ [1, 'a', none, {'b': 1e20}] }}", "[1, 'a', None, {'b': 1e+20}]");
    check("{{ true | string ~ none | string }}", "TrueNone");
    check("{{ 'it\\'s' }} {{ [\"it's\"] }}", "it's [\"it's\"]");
}

#[test]
fn json_is_pythons() {
    check(
        "{{ {'a': [1, 2.5, 1e20, none, true, '<é>&\\'']} | tojson }}",
        "{\"a\": [1, 2.5, 1e+20, null, true, \"<é>&'\"]}",
    );
    check("{{ {'a': [1]} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}");
    check("{{ 'é' | tojson(ensure_ascii=true) }}", "\"\\u00e9\"");
    check("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]");
}

#[test]
fn objects_keep_order_and_their_methods() {
    let variables = json!({"x": {"items": 1, "b": 2, "a": 3, "keys": 4}});
    let text = render(
        "{% for k, v in x.items() %}{{ k }}{{ v }} {% endfor %}{{ x.get('b') }}{{ x.get('c') }}",
        variables,
    );
    assert_eq!(text.expect("renders"), "items1 b2 a3 keys4 2None");
}

#[test]
fn refusals_carry_the_words_of_the_template() {
    let source = "{% macro m() %}{{ raise_exception('No ' ~ 1) }}{% endmacro %}{{ m() }}";
    match render(source, json!({})) {
        Err(TextError::Refused { message }) => assert_eq!(message, "No 1"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn endless_templates_end() {
    let long = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}";
    assert!(matches!(render(long, json!({})), Err(TextError::RenderTooLong { .. })));
    let wide = "{% set x = namespace(s='x') %}{% for i in range(99) %}{% set x.s = x.s ~ x.s %}{% endfor %}";
    assert!(render(wide, json!({})).is_err());
    let deep = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(matches!(render(deep, json!({})), Err(TextError::Render { .. })));
    let pad = "{{ 'x'.ljust(999999999999) }}";
    assert!(render(pad, json!({})).is_err());
    let nested = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(matches!(render(&nested, json!({})), Err(TextError::Template { .. })));
}

#[test]
fn templates_come_from_tokenizer_config() {
    let turn = [Message::text(Role::User, "x")];
    let text = |config: Value, tools: &[Value]| {
        ChatTemplate::from_tokenizer_config(config.to_string().as_bytes())
            .expect("valid")
            .map(|t| t.render(&turn, tools, &RenderOptions::for_answer()).expect("renders"))
    };
    let tool = [json!({"name": "f"})];
    assert_eq!(text(json!({}), &[]), None);
    assert_eq!(text(json!({"chat_template": null}), &[]), None);
    assert_eq!(text(json!({"chat_template": "a\n"}), &[]), Some("a".into()));
    let list = json!({"chat_template": [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools | length }} tool"},
    ]});
    assert_eq!(text(list.clone(), &[]), Some("plain".into()));
    assert_eq!(text(list, &tool), Some("1 tool".into()));
    let named = json!({"chat_template": "{{ eos_token }}{{ pad_token }}", "eos_token": "E", "pad_token": {"content": "P"}});
    assert_eq!(text(named, &[]), Some("EP".into()));
    for broken in [
        "",
        "[]",
        r#"{"chat_template": 1}"#,
        r#"{"chat_template": []}"#,
        r#"{"chat_template": "{% if"}"#,
    ] {
        assert!(matches!(
            ChatTemplate::from_tokenizer_config(broken.as_bytes()),
            Err(TextError::Template { .. })
        ));
    }
}

#[test]
fn extra_variables_do_not_replace_the_conversation() {
    let template = ChatTemplate::new("{{ messages | length }} {{ x }}").expect("valid");
    let extra = Map::from_iter([("messages".to_string(), json!([])), ("x".to_string(), json!(1))]);
    let options = RenderOptions { extra, ..RenderOptions::for_answer() };
    let turns = [Message::text(Role::User, "x")];
    assert_eq!(template.render(&turns, &[], &options).expect("renders"), "1 1");
}

/// Pieces of templates, joined at random.
fn source() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-",
        "+",
        "if ",
        "for ",
        "x",
        " in ",
        "endif",
        "endfor",
        "messages",
        "|",
        "tojson",
        "trim",
        "join",
        ".",
        "split",
        "(",
        ")",
        "[",
        "]",
        "::-1",
        "'",
        "\"",
        "a",
        "1",
        "1e400",
        "-9223372036854775808",
        "//",
        "%",
        "**",
        "0",
        "~",
        "is ",
        "string",
        "set ",
        "=",
        "macro ",
        "m()",
        "endmacro",
        "namespace",
        ",",
        ":",
        "{",
        "}",
        "\n",
        " ",
        "center",
        "9999999",
        "range",
        "*",
        "loop",
        "raise_exception",
        "strftime_now",
        "é",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Valid expressions of methods and filters with odd arguments.
fn expression() -> impl Strategy<Value = String> {
    let value = || {
        prop::sample::select(vec![
            "'a b'",
            "''",
            "'é\u{1f468}字'",
            "0",
            "-1",
            "1.5",
            "1e300",
            "none",
            "true",
            "[]",
            "[1,'a']",
            "{'a': 1}",
            "x",
            "messages",
            "9223372036854775807",
            "-9223372036854775808",
            "('a','b')",
        ])
    };
    let call = prop::sample::select(vec![
        ".split",
        ".rsplit",
        ".strip",
        ".find",
        ".rfind",
        ".count",
        ".index",
        ".startswith",
        ".endswith",
        ".replace",
        ".center",
        ".zfill",
        ".ljust",
        ".partition",
        ".splitlines",
        ".join",
        ".title",
        ".get",
        ".items",
        ".keys",
        "|trim",
        "|join",
        "|tojson",
        "|list",
        "|length",
        "|first",
        "|last",
        "|round",
        "|int",
        "|float",
        "|sort",
        "|unique",
        "|sum",
        "|batch",
        "|slice",
        "|indent",
        "|replace",
        "|default",
        "|dictsort",
        "|items",
        "|reverse",
        "|map",
        "|selectattr",
        "|groupby",
        "|truncate",
        "|wordcount",
        "|string",
        "|abs",
        "|upper",
    ]);
    (value(), call, prop::collection::vec(value(), 0..3), value()).prop_map(
        |(on, call, args, slice)| {
            let args = args.join(", ");
            format!("{{{{ ({on}){call}({args}) }}}}{{{{ ({on})[{slice}:{slice}:{slice}] }}}}")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn no_template_panics(source in prop_oneof![source(), expression(), any::<String>()]) {
        let _ = render(&source, json!({"x": {"a": [1, null]}, "messages": [{"role": "user"}]}));
    }
}
