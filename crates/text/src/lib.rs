//! Tokenizer, chat template, detokeniser and output parser.
