//! The API for programs that read `OpenAPI`, made from the wire types.

use crate::chat::wire::{ChatCompletion, ChatCompletionRequest};
use crate::completions::wire::{Completion, CompletionRequest};
use crate::dialect::Dialect;
use crate::error::ErrorBody;
use crate::models::{Health, ModelCard, ModelList};
use crate::native::{DetokenizeRequest, Rendering, TokenizeRequest, Tokenized};
use crate::{anthropic, ollama, responses};
use axum::Json;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// `GET /openapi.json`.
pub(crate) async fn openapi() -> Json<&'static Value> {
    Json(&DOCUMENT)
}

/// Paths and schemas in the making.
pub(crate) struct Paths {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
    by_path: Map<String, Value>,
}

/// What comes back from an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Json,
    /// JSON, or events if the request asks for a stream.
    JsonOrEvents,
    /// JSON, or a JSON object a line if the request asks for a stream.
    JsonOrLines,
}

impl Paths {
    pub(crate) fn get<A: JsonSchema>(&mut self, path: &str, summary: &str) {
        let answer = self.answers.subschema_for::<A>();
        self.add("get", path, summary, None, &answer, Answer::Json);
    }

    pub(crate) fn post<R: JsonSchema, A: JsonSchema>(
        &mut self,
        path: &str,
        summary: &str,
        form: Answer,
    ) {
        let request = self.requests.subschema_for::<R>();
        let answer = self.answers.subschema_for::<A>();
        self.add("post", path, summary, Some(request), &answer, form);
    }

    pub(crate) fn delete<A: JsonSchema>(&mut self, path: &str, summary: &str) {
        let answer = self.answers.subschema_for::<A>();
        self.add("delete", path, summary, None, &answer, Answer::Json);
    }

    fn add(
        &mut self,
        method: &str,
        path: &str,
        summary: &str,
        request: Option<Schema>,
        answer: &Schema,
        form: Answer,
    ) {
        let failure = match Dialect::of(path) {
            Dialect::OpenAi => self.answers.subschema_for::<ErrorBody<'_>>(),
            // Their own shapes, of a message.
            Dialect::Anthropic | Dialect::Ollama => {
                json_schema!({"type": "object", "required": ["error"]})
            }
        };
        let mut content = json!({"application/json": {"schema": answer}});
        match form {
            Answer::Json => {}
            Answer::JsonOrEvents => {
                content["text/event-stream"] = json!({"schema": {"type": "string"}});
            }
            Answer::JsonOrLines => {
                content["application/x-ndjson"] = json!({"schema": {"type": "string"}});
            }
        }
        let failure = json!({
            "description": "What is wrong, and with which field.",
            "content": {"application/json": {"schema": failure}},
        });
        let mut operation = json!({
            "summary": summary,
            "responses": {
                "200": {"description": "The answer.", "content": content},
                "4XX": failure,
                "5XX": failure,
            },
        });
        if let Some(request) = request {
            operation["requestBody"] = json!({
                "required": true,
                "content": {"application/json": {"schema": request}},
            });
        }
        let parameters: Vec<_> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| {
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
            })
            .collect();
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        let methods = self.by_path.entry(path).or_insert_with(|| json!({}));
        methods[method] = operation;
    }
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut paths = Paths {
        requests: settings.clone().for_deserialize().into_generator(),
        answers: settings.for_serialize().into_generator(),
        by_path: Map::new(),
    };
    openai(&mut paths);
    responses::describe(&mut paths);
    anthropic::describe(&mut paths);
    ollama::describe(&mut paths);
    native(&mut paths);
    let mut schemas = paths.answers.take_definitions(false);
    for (name, schema) in paths.requests.take_definitions(false) {
        let other = schemas.insert(name.clone(), schema);
        assert!(other.is_none(), "two types named {name}");
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Lily",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A local model behind the APIs that clients know.",
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
        "paths": paths.by_path,
    })
}

fn openai(paths: &mut Paths) {
    paths.post::<ChatCompletionRequest, ChatCompletion>(
        "/v1/chat/completions",
        "Answer a conversation.",
        Answer::JsonOrEvents,
    );
    paths.post::<CompletionRequest, Completion<'_>>(
        "/v1/completions",
        "Continue a text.",
        Answer::JsonOrEvents,
    );
    paths.get::<ModelList>("/v1/models", "The model that is served.");
    paths.get::<ModelCard>("/v1/models/{id}", "The model by its id.");
}

fn native(paths: &mut Paths) {
    paths.post::<TokenizeRequest, Tokenized>(
        "/tokenize",
        "The tokens of a text or a conversation.",
        Answer::Json,
    );
    paths.post::<DetokenizeRequest, Value>("/detokenize", "The text of tokens.", Answer::Json);
    paths.post::<Rendering, Value>(
        "/apply-template",
        "The prompt of a conversation as the model reads it.",
        Answer::Json,
    );
    paths.get::<Value>("/v1/lily/props", "What is served, and its limits.");
    paths.get::<Value>("/v1/lily/slots", "What is being computed, and what waits.");
    paths.get::<Health>("/health", "Whether requests are taken.");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference leads somewhere.
    fn check(value: &Value, root: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                    let pointer = target.strip_prefix('#').expect("local");
                    assert!(root.pointer(pointer).is_some(), "{target}");
                }
                fields.values().for_each(|v| check(v, root));
            }
            Value::Array(items) => items.iter().for_each(|v| check(v, root)),
            _ => {}
        }
    }

    #[test]
    fn the_document_is_whole() {
        let document = document();
        check(&document, &document);
        let request = &document["components"]["schemas"]["ChatCompletionRequest"];
        assert_eq!(request["required"], json!(["messages"]));
        assert_eq!(request["properties"]["temperature"]["maximum"], 2.0);
        assert!(document["paths"]["/v1/models/{id}"]["get"]["parameters"].is_array());
        let text = document.to_string();
        assert!(!text.contains("$defs"), "all schemas are components");
    }
}
