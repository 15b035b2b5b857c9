//! Writes each case of `crates/text/tests/corpus` as a seed of `parse_output`.

use lily_fuzz::Input;
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let seeds = root.join("corpus/parse_output");
    fs::create_dir_all(&seeds)?;
    let mut n_seeds = 0;
    for entry in fs::read_dir(root.join("../crates/text/tests/corpus"))? {
        let path = entry?.path();
        let theme: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        for case in theme["cases"].as_array().into_iter().flatten() {
            let tools = case.get("tools").unwrap_or(&theme["tools"]);
            let has_tools = tools.as_array().is_some_and(|tools| !tools.is_empty());
            let starts_in_thinking = case["starts_in_thinking"] == Value::Bool(true);
            let text = case["text"].as_str().unwrap_or_default();
            let seed = Input::seed(starts_in_thinking, has_tools, text);
            fs::write(seeds.join(format!("seed-{n_seeds:04}")), seed)?;
            n_seeds += 1;
        }
    }
    println!("{n_seeds} seeds in {}", seeds.display());
    Ok(())
}
