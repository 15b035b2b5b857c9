//! Whether and how long the model thinks.

use crate::error::{ApiError, quoted};
use crate::json::{check_depth, kind_of};
use crate::limits::TEMPLATE_ARGUMENTS_MAX;
use lily_text::RenderOptions;
use serde_json::{Map, Value};

/// Arguments that the server gives to the template itself.
const RESERVED_TEMPLATE_ARGUMENTS: [&str; 5] =
    ["add_generation_prompt", "bos_token", "eos_token", "messages", "tools"];

/// Arguments of the template, and the budget in tokens.
///
/// Thinking, from the most to the least particular: `chat_template_kwargs.enable_thinking`,
/// `enable_thinking`, `reasoning_effort`.
pub(super) fn options(
    kwargs: Option<Map<String, Value>>,
    enable_thinking: Option<bool>,
    effort: Option<&str>,
    budget: Option<u64>,
) -> Result<(RenderOptions, Option<usize>), ApiError> {
    let mut kwargs = kwargs.unwrap_or_default();
    if kwargs.len() > TEMPLATE_ARGUMENTS_MAX {
        let problem = format!("has more than {TEMPLATE_ARGUMENTS_MAX} entries");
        return Err(ApiError::invalid("chat_template_kwargs", problem));
    }
    for (name, value) in &kwargs {
        let param = format!("chat_template_kwargs.{}", quoted(name));
        if RESERVED_TEMPLATE_ARGUMENTS.contains(&name.as_str()) {
            return Err(ApiError::invalid(param, "is set by the server"));
        }
        check_depth(&param, value)?;
    }
    let explicit = take_switch(&mut kwargs, "enable_thinking")?;
    if let Some(preserve) = take_switch(&mut kwargs, "preserve_thinking")? {
        kwargs.insert("preserve_thinking".to_owned(), preserve.into());
    }
    let effort = effort.map(|effort| by_effort("reasoning_effort", effort)).transpose()?;
    let enable_thinking = explicit.or(enable_thinking).or(effort.map(|effort| effort.thinks));
    let budget = budget.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let options = RenderOptions { enable_thinking, extra: kwargs, ..RenderOptions::for_answer() };
    Ok((options, budget.or(effort.and_then(|effort| effort.budget))))
}

fn take_switch(kwargs: &mut Map<String, Value>, name: &str) -> Result<Option<bool>, ApiError> {
    match kwargs.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(switch)) => Ok(Some(switch)),
        Some(other) => {
            let problem = format!("is {}, but must be true or false", kind_of(&other));
            Err(ApiError::invalid(format!("chat_template_kwargs.{name}"), problem))
        }
    }
}

/// What an effort means to a model that can think or not, and be stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) thinks: bool,
    /// Most tokens of thinking.
    pub(crate) budget: Option<usize>,
}

/// The model knows no grades, so that the lower ones are bounds: from a glance at the question, of
/// a paragraph or two, to what most questions need.
///
/// # Errors
/// 400 for another word.
pub(crate) fn by_effort(param: &str, effort: &str) -> Result<Effort, ApiError> {
    let (thinks, budget) = match effort {
        "none" => (false, None),
        "minimal" => (true, Some(256)),
        "low" => (true, Some(1_024)),
        "medium" => (true, Some(8_192)),
        "high" | "xhigh" | "max" => (true, None),
        other => {
            let problem = format!(
                "is `{}`, but must be none, minimal, low, medium, high, xhigh or max",
                quoted(other)
            );
            return Err(ApiError::invalid(param, problem));
        }
    };
    Ok(Effort { thinks, budget })
}
