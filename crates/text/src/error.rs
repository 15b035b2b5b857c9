//! What can go wrong between text and ids.

/// Why text could not be rendered, encoded or set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The tokenizer file is broken or not of the kind that this model uses.
    #[error("tokenizer.json cannot be used: {problem}; take the file of the original checkpoint")]
    Tokenizer {
        /// What is wrong with it.
        problem: String,
    },
    /// The tokenizer gave up on a text.
    #[error("text of {text_bytes} bytes cannot be encoded: {problem}")]
    Encode {
        /// Length of the text.
        text_bytes: usize,
        /// What the tokenizer says.
        problem: String,
    },
    /// The chat template is not valid Jinja, or `tokenizer_config.json` not valid JSON.
    #[error("the chat template cannot be used: {problem}; take the one of the original checkpoint")]
    Template {
        /// What is wrong with it, with its place.
        problem: String,
    },
    /// The template itself refused the conversation with `raise_exception`.
    #[error("the chat template refuses the conversation: {message}")]
    Refused {
        /// The words of the template.
        message: String,
    },
    /// The template failed on the conversation.
    #[error("the chat template fails on the conversation: {problem}")]
    Render {
        /// What happened, with its place.
        problem: String,
    },
    /// The template ran for too long or wrote too much.
    #[error(
        "the chat template takes more than {steps_max} steps; shorten the conversation or mend \
         the template"
    )]
    RenderTooLong {
        /// The limit.
        steps_max: u64,
    },
}
