//! OpenAI-compatible HTTP server.
