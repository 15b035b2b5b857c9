//! Renders conversations from stdin, one JSON object a line, for comparing with other
//! implementations (`tests/clients/template_agreement.py`).
//!
//! In: `{"template" | "template_path", "variables"}` gives the template exactly these variables;
//! out: `{"ok": text}` or `{"error": words}`.

use lily_text::ChatTemplate;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Write};

fn main() -> std::io::Result<()> {
    let mut compiled = HashMap::new();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = match render(&mut compiled, &line?) {
            Ok(text) => json!({"ok": text}),
            Err(problem) => json!({"error": problem}),
        };
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn render(compiled: &mut HashMap<String, ChatTemplate>, line: &str) -> Result<String, String> {
    let request: Map<String, Value> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let source = match (request.get("template"), request.get("template_path")) {
        (Some(Value::String(source)), _) => source.clone(),
        (_, Some(Value::String(path))) => {
            std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?
        }
        _ => return Err("give `template` or `template_path`".to_string()),
    };
    if !compiled.contains_key(&source) {
        let template = ChatTemplate::new(&source).map_err(|e| e.to_string())?;
        compiled.insert(source.clone(), template);
    }
    let variables = request.get("variables").and_then(Value::as_object);
    let variables = variables.ok_or("give `variables`, an object")?;
    compiled[&source].render_variables(variables).map_err(|e| e.to_string())
}
