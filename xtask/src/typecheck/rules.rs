//! What Metal refuses and plain C++ accepts, found in the words of a preprocessed kernel.

use std::collections::BTreeSet;

/// Where a pointer may point.
const SPACES: &[&str] = &["device", "constant", "threadgroup", "thread", "LILY_THREADGROUP_ARRAY"];

/// Types that no kernel file declares.
const TYPES: &[&str] = &[
    "void",
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "bfloat",
    "float",
    "float2",
    "float4",
    "uint2",
    "uint3",
    "uint4",
    "ulong2",
    "atomic_uint",
    "atomic_int",
    "auto",
];

/// A word or a sign, and the line it stands on.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    file: &'a str,
    line: usize,
}

/// Every fault of a text that `clang -E` has written.
pub(super) fn faults(preprocessed: &str) -> Vec<String> {
    let tokens = tokens(preprocessed);
    let mut faults = pointers_without_space(&tokens);
    faults.extend(variables_outside_constant(&tokens));
    faults
}

fn fault(token: &Token<'_>, problem: &str) -> String {
    format!("{}:{}: {problem}", token.file, token.line)
}

/// Words and signs without attributes and pragmas; line markers become places.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut file, mut line) = ("", 0);
    for written in text.lines() {
        if let Some(marker) = written.strip_prefix("# ") {
            let mut words = marker.splitn(2, ' ');
            line = words.next().and_then(|number| number.parse().ok()).unwrap_or(0);
            file = words.next().and_then(|name| name.split('"').nth(1)).unwrap_or(file);
            continue;
        }
        if !written.starts_with('#') {
            line_tokens(written, file, line, &mut found);
        }
        line += 1;
    }
    found
}

fn line_tokens<'a>(written: &'a str, file: &'a str, line: usize, found: &mut Vec<Token<'a>>) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut rest = written.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(inside) = rest.strip_prefix("[[") {
            rest = inside.split_once("]]").map_or("", |(_, after)| after).trim_start();
            continue;
        }
        let len = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if ["::", "&&"].iter().any(|sign| rest.starts_with(sign)) {
            2
        } else {
            first.len_utf8()
        };
        found.push(Token { text: &rest[..len], file, line });
        rest = rest[len..].trim_start();
    }
}

/// `float* p` and `float& r`: Metal wants to be told the address space, clang takes the default one,
/// which here is `thread`.
fn pointers_without_space(tokens: &[Token<'_>]) -> Vec<String> {
    let mut types: BTreeSet<&str> = TYPES.iter().copied().collect();
    for (idx, token) in tokens.iter().enumerate() {
        match token.text {
            "struct" | "typename" | "class" | "using" => {
                types.extend(tokens.get(idx + 1).map(|name| name.text));
            }
            "typedef" => {
                let end = tokens[idx..].iter().position(|token| token.text == ";");
                types.extend(end.map(|end| tokens[idx + end - 1].text));
            }
            _ => {}
        }
    }
    let mut faults = Vec::new();
    for idx in 1..tokens.len() {
        if !matches!(tokens[idx].text, "*" | "&") {
            continue;
        }
        let mut last = idx - 1;
        if tokens[last].text == "const" && last > 0 {
            last -= 1;
        }
        let is_type = match tokens[last].text {
            ">" => opening(tokens, last).is_some_and(|open| types.contains(tokens[open - 1].text)),
            word => types.contains(word),
        };
        if is_type && !declaration(tokens, idx).any(|word| SPACES.contains(&word)) {
            let problem =
                format!("`{}{}` has no address space", tokens[last].text, tokens[idx].text);
            faults.push(fault(&tokens[idx], &problem));
        }
    }
    faults
}

/// The `<` of the `>` at `close`, if there is a word before it.
fn opening(tokens: &[Token<'_>], close: usize) -> Option<usize> {
    let mut depth = 0;
    for idx in (1..=close).rev() {
        match tokens[idx].text {
            ">" => depth += 1,
            "<" => depth -= 1,
            ";" | "{" | "}" => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(idx);
        }
    }
    None
}

/// The words of the declaration before `end`, backwards.
fn declaration<'a>(tokens: &'a [Token<'a>], end: usize) -> impl Iterator<Item = &'a str> {
    let mut depth = 0;
    tokens[..end].iter().rev().map(|token| token.text).take_while(move |text| {
        match *text {
            ">" | ")" => depth += 1,
            "<" | "(" => depth -= 1,
            _ => {}
        }
        depth >= 0 && (depth > 0 || !matches!(*text, "," | ";" | "{" | "}"))
    })
}

/// Variables outside functions lie in `constant`, or Metal does not compile.
fn variables_outside_constant(tokens: &[Token<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut statement: Vec<&Token<'_>> = Vec::new();
    let mut depth = 0;
    let mut parens = 0;
    for token in tokens {
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                // A function or a namespace ends without a semicolon; a struct's follows.
                if depth == 0 && !statement.iter().any(|token| token.text == "=") {
                    statement.clear();
                }
                continue;
            }
            "(" => parens += 1,
            ")" => parens -= 1,
            _ => {}
        }
        if depth > 0 {
            continue;
        }
        if token.text != ";" || parens > 0 {
            statement.push(token);
            continue;
        }
        let words: Vec<&str> = statement.iter().map(|token| token.text).collect();
        let declares = words.len() > 1
            && !["typedef", "using", "template", "struct", "static_assert"].contains(&words[0]);
        let head = words.iter().take_while(|word| !matches!(**word, "=" | "{"));
        let is_function = head.clone().any(|word| *word == "(");
        if declares && !is_function && !words.contains(&"constant") {
            faults.push(fault(statement[0], "a variable outside functions is not `constant`"));
        }
        statement.clear();
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found = faults(&format!("# 1 \"x.metal\"\n{text}"));
        let found: Vec<&str> = found.iter().map(|fault| fault.split('`').nth(1).unwrap()).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn pointers_say_where_they_point() {
        check(
            "inline void f(device const float* x, thread float* y, threadgroup float4* z) {}",
            &[],
        );
        check("inline void f(const float* x, thread float* y, uint& z) {}", &["float*", "uint&"]);
        check("inline void f(float const* x) { float* p = a; }", &["float*", "float*"]);
        check("typedef uint code_t; void f(code_t* x, device code_t* y);", &["code_t*"]);
        check("struct P { uint n; }; void f(constant P& p [[buffer(2)]], P& q);", &["P&"]);
        check("template <typename T> void f(T* x);", &["T*"]);
        check("struct Tile {}; void f(thread Tile<8, 16>& t, Tile<8, 16>& u);", &[">&"]);
        check("void f(device const typename Code<B, S>::type* codes);", &[]);
        check("void f() { g((threadgroup float*)t, (float*)u); }", &["float*"]);
    }

    #[test]
    fn arithmetic_is_no_pointer() {
        check("void f() { uint y = x * n + uint(x) * 4 + (a & b) + (a > b * c); }", &[]);
        check("void f() { bool y = i < n && j > m; float z = float(x) * y; g(x, &y); }", &[]);
        check("void f() { const float4 v = *(device const uint4*)x; }", &[]);
    }

    #[test]
    fn variables_outside_functions_are_constant() {
        check("constant constexpr uint N = 16; constexpr uint M = 4;", &["constant"]);
        check("constant float t[2] = {1, 2}; const float u[2] = {1, 2}; uint v;", &["constant"; 2]);
        check("void f(uint x = 3) { uint y = 4; } void g(); struct S { uint x; };", &[]);
        check(
            "using namespace metal; typedef uint u; template <uint N> struct C { typedef uint t; };",
            &[],
        );
    }

    #[test]
    fn faults_are_found_on_their_line() {
        let text = "# 1 \"a.metal\"\nvoid f();\n# 7 \"b.h\" 1\n\nvoid g(float* x);\n";
        assert_eq!(faults(text), ["b.h:8: `float*` has no address space"]);
    }
}
