//! Checks of everything in a request that has a range.

use crate::limits::{
    DEADLINE_S_MAX, LOGIT_BIAS, LOGIT_BIAS_ENTRIES_MAX, LOGPROBS_MAX, PENALTY, QUOTED_BYTES_MAX,
    REPETITION_PENALTY_MAX, STOP_STRING_BYTES_MAX, STOP_STRINGS_MAX, TEMPERATURE,
};
use crate::sample::Settings;
use crate::{GenerateRequest, Prompt, SubmitError};
use lily_text::{Content, Message, Part, Role, TokenId};

/// Everything but the prompt and the sampling values.
///
/// # Errors
/// [`SubmitError::Invalid`] for the first field out of range.
pub(crate) fn request(request: &GenerateRequest) -> Result<(), SubmitError> {
    if request.max_tokens == Some(0) && request.prompt_logprobs.is_none() {
        return invalid("max_tokens", "0", "at least 1, or 0 together with prompt_logprobs");
    }
    let alternatives =
        [("logprobs", request.logprobs), ("prompt_logprobs", request.prompt_logprobs)];
    for (field, n) in alternatives {
        if let Some(n) = n.filter(|n| *n > LOGPROBS_MAX) {
            return invalid(field, n.to_string(), "from 0 to 20");
        }
    }
    if request.prompt_logprobs.is_some() && matches!(request.prompt, Prompt::Chat(_)) {
        return invalid(
            "prompt_logprobs",
            "set for a conversation",
            "left out but for text prompts",
        );
    }
    if request.stop.len() > STOP_STRINGS_MAX {
        return invalid("stop", format!("{} strings", request.stop.len()), "at most 16 strings");
    }
    for stop in &request.stop {
        if stop.is_empty() {
            return invalid("stop", "an empty string", "text that ends the answer");
        }
        if stop.len() > STOP_STRING_BYTES_MAX {
            let value = format!("a string of {} bytes", stop.len());
            return invalid("stop", value, "strings of at most 1024 bytes");
        }
    }
    if let Some(deadline) = request.deadline.filter(|d| d.as_secs() > DEADLINE_S_MAX) {
        return invalid("deadline", format!("{} s", deadline.as_secs()), "at most a year");
    }
    Ok(())
}

/// A conversation whose last turn is to be continued.
///
/// # Errors
/// [`SubmitError::Invalid`] if that is no turn that an answer can go on from.
pub(crate) fn continued(messages: &[Message]) -> Result<(), SubmitError> {
    let expected = "text of the assistant without tool calls, to be continued";
    let fail = |last: &str| invalid("messages", format!("a list that ends with {last}"), expected);
    let Some(last) = messages.last() else { return fail("nothing") };
    if last.role != Role::Assistant {
        return fail(&format!("a turn of the {}", last.role.as_str()));
    }
    if !last.tool_calls.is_empty() {
        return fail("a tool call");
    }
    let text = match &last.content {
        Content::Text(text) => text,
        Content::Parts(parts) => match parts.last() {
            Some(Part::Text(text)) => text,
            _ => return fail("a part without text"),
        },
    };
    if text.trim().is_empty() { fail("empty text") } else { Ok(()) }
}

/// The sampling values after defaults.
///
/// # Errors
/// [`SubmitError::Invalid`] for the first value out of range.
pub(crate) fn settings(settings: &Settings, vocab_size: usize) -> Result<(), SubmitError> {
    // NaN is in no range.
    let check = |field, value: f32, holds: bool, expected| {
        if holds { Ok(()) } else { invalid(field, value.to_string(), expected) }
    };
    let s = settings;
    check("temperature", s.temperature, TEMPERATURE.contains(&s.temperature), "from 0 to 100")?;
    check("top_p", s.top_p, s.top_p > 0.0 && s.top_p <= 1.0, "more than 0 and at most 1")?;
    check("min_p", s.min_p, (0.0..=1.0).contains(&s.min_p), "from 0 to 1")?;
    for (field, penalty) in
        [("presence_penalty", s.presence_penalty), ("frequency_penalty", s.frequency_penalty)]
    {
        check(field, penalty, PENALTY.contains(&penalty), "from -2 to 2")?;
    }
    let r = s.repetition_penalty;
    let holds = r > 0.0 && r <= REPETITION_PENALTY_MAX;
    check("repetition_penalty", r, holds, "more than 0 and at most 100")?;
    if s.logit_bias.len() > LOGIT_BIAS_ENTRIES_MAX {
        let value = format!("{} entries", s.logit_bias.len());
        return invalid("logit_bias", value, "at most 1024 entries");
    }
    for &(id, bias) in &s.logit_bias {
        token_id("logit_bias", id, vocab_size)?;
        check("logit_bias", bias, LOGIT_BIAS.contains(&bias), "from -100 to 100")?;
    }
    Ok(())
}

/// The tokens of a prompt.
///
/// # Errors
/// [`SubmitError::Invalid`] if there is none or one outside the vocabulary,
/// [`SubmitError::TooLong`] if `n_answer_min` tokens do not fit after them.
pub(crate) fn prompt(
    ids: &[TokenId],
    vocab_size: usize,
    context_tokens: usize,
    n_answer_min: usize,
) -> Result<(), SubmitError> {
    if ids.is_empty() {
        return invalid("prompt", "empty", "at least one token");
    }
    if ids.len() + n_answer_min > context_tokens {
        return Err(SubmitError::TooLong { prompt_tokens: ids.len(), context_tokens });
    }
    ids.iter().try_for_each(|&id| token_id("prompt", id, vocab_size))
}

fn token_id(field: &'static str, id: TokenId, vocab_size: usize) -> Result<(), SubmitError> {
    if (id as usize) < vocab_size {
        return Ok(());
    }
    invalid(field, format!("token {id}"), "tokens of the vocabulary")
}

fn invalid<T>(
    field: &'static str,
    value: impl Into<String>,
    expected: &'static str,
) -> Result<T, SubmitError> {
    let mut value = value.into();
    value.truncate(value.floor_char_boundary(QUOTED_BYTES_MAX));
    Err(SubmitError::Invalid { field, value, expected })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sampling;
    use std::time::Duration;

    fn plain() -> GenerateRequest {
        GenerateRequest::new(Prompt::Tokens(vec![1]))
    }

    fn field(result: Result<(), SubmitError>) -> Option<&'static str> {
        match result {
            Ok(()) => None,
            Err(SubmitError::Invalid { field, .. }) => Some(field),
            Err(other) => panic!("{other}"),
        }
    }

    fn check(sampling: &Sampling, expected: Option<&'static str>) {
        let merged = Settings::new(sampling, &Sampling::default());
        assert_eq!(field(settings(&merged, 10)), expected, "{sampling:?}");
    }

    #[test]
    fn sampling_values_have_ranges() {
        let open = Sampling::default;
        check(&open(), None);
        for (value, expected) in [
            (0.0, None),
            (100.0, None),
            (-0.1, Some("temperature")),
            (100.1, Some("temperature")),
            (f32::NAN, Some("temperature")),
            (f32::INFINITY, Some("temperature")),
        ] {
            check(&Sampling { temperature: Some(value), ..open() }, expected);
        }
        for (value, expected) in
            [(1.0, None), (0.0, Some("top_p")), (1.1, Some("top_p")), (f32::NAN, Some("top_p"))]
        {
            check(&Sampling { top_p: Some(value), ..open() }, expected);
        }
        for (value, expected) in
            [(0.0, None), (1.0, None), (-0.1, Some("min_p")), (1.1, Some("min_p"))]
        {
            check(&Sampling { min_p: Some(value), ..open() }, expected);
        }
        for value in [-2.1, 2.1, f32::NAN] {
            check(&Sampling { presence_penalty: Some(value), ..open() }, Some("presence_penalty"));
            check(
                &Sampling { frequency_penalty: Some(value), ..open() },
                Some("frequency_penalty"),
            );
        }
        for value in [0.0, -1.0, 100.1, f32::NAN] {
            check(
                &Sampling { repetition_penalty: Some(value), ..open() },
                Some("repetition_penalty"),
            );
        }
        check(&Sampling { top_k: Some(u32::MAX), ..open() }, None);
        check(&Sampling { logit_bias: vec![(9, 100.0), (0, -100.0)], ..open() }, None);
        for bias in [(10, 0.0), (1, 100.1), (1, f32::NAN)] {
            check(&Sampling { logit_bias: vec![bias], ..open() }, Some("logit_bias"));
        }
        check(&Sampling { logit_bias: vec![(1, 0.0); 1_025], ..open() }, Some("logit_bias"));
    }

    #[test]
    fn other_fields_have_ranges() {
        let check = |changed: GenerateRequest, expected| {
            assert_eq!(field(request(&changed)), expected, "{changed:?}");
        };
        check(plain(), None);
        check(GenerateRequest { max_tokens: Some(0), ..plain() }, Some("max_tokens"));
        check(GenerateRequest { max_tokens: Some(usize::MAX), ..plain() }, None);
        let scored = GenerateRequest { prompt_logprobs: Some(20), ..plain() };
        check(GenerateRequest { max_tokens: Some(0), ..scored.clone() }, None);
        check(GenerateRequest { prompt_logprobs: Some(21), ..scored }, Some("prompt_logprobs"));
        check(GenerateRequest { logprobs: Some(20), ..plain() }, None);
        check(GenerateRequest { logprobs: Some(21), ..plain() }, Some("logprobs"));
        check(GenerateRequest { stop: vec![String::new()], ..plain() }, Some("stop"));
        check(GenerateRequest { stop: vec!["x".repeat(1_024); 16], ..plain() }, None);
        check(GenerateRequest { stop: vec!["x".repeat(1_025)], ..plain() }, Some("stop"));
        check(GenerateRequest { stop: vec!["x".to_owned(); 17], ..plain() }, Some("stop"));
        check(GenerateRequest { deadline: Some(Duration::MAX), ..plain() }, Some("deadline"));
    }

    #[test]
    fn prompts_fit_and_are_in_the_vocabulary() {
        assert_eq!(field(prompt(&[0, 9], 10, 3, 1)), None);
        assert_eq!(field(prompt(&[], 10, 3, 1)), Some("prompt"));
        assert_eq!(field(prompt(&[10], 10, 3, 1)), Some("prompt"));
        assert_eq!(field(prompt(&[1; 3], 10, 3, 0)), None);
        let too_long = prompt(&[1; 3], 10, 3, 1);
        assert!(
            matches!(too_long, Err(SubmitError::TooLong { prompt_tokens: 3, context_tokens: 3 })),
            "no room for a token"
        );
    }
}
