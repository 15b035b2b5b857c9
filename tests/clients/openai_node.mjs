// Checks a running server with OpenAI's Node SDK.
//
//     node openai_node.mjs http://127.0.0.1:8080
//
// Node looks for packages beside this file and above; `OPENAI_NODE_MODULES` names another folder.
// What is strict here and what is not: see openai_python.py.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.env.OPENAI_NODE_MODULES ?? import.meta.dirname;
const require = createRequire(pathToFileURL(path.join(folder, "x.js")));
const entry = require.resolve("openai");
const { default: OpenAI } = await import(pathToFileURL(entry).href);
const { version } = JSON.parse(fs.readFileSync(path.join(path.dirname(entry), "package.json"), "utf8"));

const BASE_URL = (process.argv[2] ?? "http://127.0.0.1:8080").replace(/\/$/, "");
const client = new OpenAI({ baseURL: `${BASE_URL}/v1`, apiKey: "any", timeout: 120_000, maxRetries: 2 });

const OFF = { chat_template_kwargs: { enable_thinking: false } };
const ON = { chat_template_kwargs: { enable_thinking: true } };
const HELLO = [{ role: "user", content: "What is Lily?" }];
const WEATHER_QUESTION = [{ role: "user", content: "What is the weather in Oslo?" }];
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

const fields = (changes = {}) => ({
  model: "demo",
  messages: HELLO,
  temperature: 0,
  max_tokens: 128,
  ...OFF,
  ...changes,
});
const create = (changes, options) => client.chat.completions.create(fields(changes), options);

async function metric(name) {
  const text = await (await fetch(`${BASE_URL}/metrics`)).text();
  const line = text.split("\n").find((l) => l.startsWith(`${name} `));
  return line ? Number(line.slice(name.length + 1)) : 0;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function eventually(what, condition) {
  const end = Date.now() + 20_000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `never: ${what}`);
    await sleep(20);
  }
}

// Folds a stream of one choice, checking the shape of every chunk.
async function gather(stream) {
  const answer = { content: "", reasoning: "", calls: [], logprobs: [], usage: null, finish: null };
  const ids = new Set();
  let first = true;
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    assert.match(chunk.id, /^chatcmpl-/);
    assert.ok(chunk.created > 1_700_000_000 && chunk.model && chunk.system_fingerprint);
    ids.add(chunk.id);
    if (chunk.choices.length === 0) {
      answer.usage = chunk.usage;
      continue;
    }
    assert.equal(answer.usage, null, "the usage comes last");
    const [choice] = chunk.choices;
    assert.equal(choice.index, 0);
    assert.equal(answer.finish, null);
    assert.equal(choice.delta.role, first ? "assistant" : undefined);
    first = false;
    answer.content += choice.delta.content ?? "";
    answer.reasoning += choice.delta.reasoning_content ?? "";
    for (const piece of choice.delta.tool_calls ?? []) {
      if (answer.calls[piece.index] === undefined) {
        assert.match(piece.id, /^call_/);
        assert.equal(piece.type, "function");
        assert.equal(piece.index, answer.calls.length);
        answer.calls.push({ name: piece.function.name, arguments: "" });
      }
      answer.calls[piece.index].arguments += piece.function.arguments;
    }
    answer.logprobs.push(...(choice.logprobs?.content ?? []));
    answer.finish = choice.finish_reason;
  }
  assert.equal(ids.size, 1);
  return answer;
}

const checks = {
  async models_are_listed() {
    const models = [];
    for await (const model of client.models.list()) models.push(model);
    assert.equal(models.length, 1);
    assert.equal(models[0].object, "model");
    assert.deepEqual({ ...(await client.models.retrieve(models[0].id)) }, { ...models[0] });
  },

  async complete_answer() {
    const answer = await create();
    assert.equal(answer.object, "chat.completion");
    assert.ok(answer._request_id);
    const [choice] = answer.choices;
    assert.equal(choice.index, 0);
    assert.equal(choice.message.role, "assistant");
    assert.ok(choice.message.content);
    assert.equal(choice.message.tool_calls, undefined);
    assert.ok(["stop", "length"].includes(choice.finish_reason));
    const { usage } = answer;
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.equal(usage.completion_tokens_details.reasoning_tokens, 0);
    assert.ok(usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens);
  },

  async stream_equals_complete_answer() {
    const complete = await create();
    const streamed = await gather(await create({ stream: true, stream_options: { include_usage: true } }));
    assert.equal(streamed.content, complete.choices[0].message.content);
    assert.equal(streamed.finish, complete.choices[0].finish_reason);
    assert.equal(streamed.usage.completion_tokens, complete.usage.completion_tokens);
    assert.equal((await gather(await create({ stream: true }))).usage, null);
  },

  async streaming_helper_of_the_sdk() {
    const runner = client.chat.completions.stream(fields());
    let text = "";
    runner.on("content", (delta) => (text += delta));
    assert.equal(text, "");
    const content = await runner.finalContent();
    assert.equal(text, content);
  },

  async thinking_on_and_off() {
    const on = await create({ ...ON, max_tokens: 512 });
    assert.ok(on.choices[0].message.reasoning_content);
    assert.ok(on.usage.completion_tokens_details.reasoning_tokens > 0);
    const off = await create();
    assert.equal(off.choices[0].message.reasoning_content, undefined);
    const streamed = await gather(await create({ ...ON, max_tokens: 512, stream: true }));
    assert.equal(streamed.reasoning, on.choices[0].message.reasoning_content);
    assert.equal(streamed.content, on.choices[0].message.content ?? "");
  },

  async tool_call_and_result_round_trip() {
    const answer = await create({ messages: WEATHER_QUESTION, tools: [WEATHER] });
    const [choice] = answer.choices;
    assert.equal(choice.finish_reason, "tool_calls");
    assert.equal(choice.message.tool_calls.length, 1);
    const [call] = choice.message.tool_calls;
    assert.match(call.id, /^call_/);
    assert.equal(call.function.name, "get_weather");
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Oslo" });
    const result = { role: "tool", tool_call_id: call.id, content: '{"temperature": 7}' };
    const messages = [...WEATHER_QUESTION, choice.message, result];
    const final = await create({ messages, tools: [WEATHER] });
    assert.ok(final.choices[0].message.content || final.choices[0].message.tool_calls);
    const streamed = await gather(await create({ messages: WEATHER_QUESTION, tools: [WEATHER], stream: true }));
    assert.equal(streamed.finish, "tool_calls");
    assert.deepEqual(streamed.calls, [{ name: call.function.name, arguments: call.function.arguments }]);
  },

  async tools_run_by_the_sdk() {
    const asked = [];
    const weather = {
      ...WEATHER.function,
      parse: JSON.parse,
      function: (input) => {
        asked.push(input);
        return '{"temperature": 7, "condition": "rain"}';
      },
    };
    const tools = [{ type: "function", function: weather }];
    const request = fields({ messages: WEATHER_QUESTION, tools, stream: true });
    const runner = client.chat.completions.runTools(request, { maxChatCompletions: 2 });
    await runner.done();
    assert.deepEqual(asked[0], { city: "Oslo" });
    assert.ok(runner.messages.some((m) => m.role === "tool"));
    assert.ok((await runner.allChatCompletions()).length === 2);
  },

  async logprobs() {
    const answer = await create({ logprobs: true, top_logprobs: 2 });
    const { content } = answer.choices[0].logprobs;
    assert.ok(content.length > 0);
    for (const entry of content) {
      assert.ok(entry.logprob <= 0);
      assert.equal(entry.top_logprobs.length, 2);
      assert.equal(new TextDecoder().decode(Uint8Array.from(entry.bytes)), entry.token);
      assert.equal(entry.token, entry.top_logprobs[0].token);
    }
    const streamed = await gather(await create({ logprobs: true, top_logprobs: 2, stream: true }));
    assert.deepEqual(streamed.logprobs.map((e) => e.token), content.map((e) => e.token));
  },

  async stop_strings() {
    const text = (await create()).choices[0].message.content;
    const stop = text.slice(2, 5);
    for (const value of [stop, [stop, "never written"]]) {
      const [choice] = (await create({ stop: value })).choices;
      assert.equal(choice.message.content, text.slice(0, text.indexOf(stop)));
      assert.equal(choice.finish_reason, "stop");
    }
  },

  async cancelled_stream_stops_the_computation() {
    const before = await metric("lily_requests_cancelled_total");
    const stream = await create({ stream: true, max_tokens: null, ignore_eos: true });
    let n = 0;
    for await (const _ of stream) {
      if (++n === 5) break;
    }
    stream.controller.abort();
    await eventually("the request ends", async () => (await metric("lily_requests_running")) === 0);
    assert.equal(await metric("lily_requests_cancelled_total"), before + 1);
    const generated = await metric("lily_generated_tokens_total");
    await sleep(300);
    assert.equal(await metric("lily_generated_tokens_total"), generated);
  },

  async twenty_requests_at_once() {
    const patient = client.withOptions({ maxRetries: 8 });
    const ask = async (i) => {
      const request = fields({ max_tokens: 32 });
      if (i % 2 === 0) return (await patient.chat.completions.create(request)).choices[0].message.content;
      return (await gather(await patient.chat.completions.create({ ...request, stream: true }))).content;
    };
    const texts = await Promise.all(Array.from({ length: 20 }, (_, i) => ask(i)));
    assert.ok(texts.every((text) => text.length > 0));
  },

  async structured_outputs() {
    const properties = { mood: { enum: ["good", "bad"] } };
    const schema = { type: "object", properties, required: ["mood"], additionalProperties: false };
    const form = { type: "json_schema", json_schema: { name: "mood", strict: true, schema } };
    const request = { ...fields({ messages: HELLO, max_tokens: 500 }), response_format: form };
    const answer = await client.chat.completions.parse(request);
    assert.ok(["good", "bad"].includes(answer.choices[0].message.parsed.mood), JSON.stringify(answer));
  },

  async forced_tools() {
    for (const choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
      const answer = await create({ tools: [WEATHER], tool_choice: choice, max_tokens: 500 });
      assert.equal(answer.choices[0].finish_reason, "tool_calls", JSON.stringify(answer));
      const [call] = answer.choices[0].message.tool_calls;
      assert.equal(call.function.name, "get_weather");
      assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
    }
  },

  async legacy_completions() {
    const request = { model: "demo", prompt: "Lily is", max_tokens: 8, temperature: 0 };
    const answer = await client.completions.create(request);
    assert.equal(answer.object, "text_completion");
    let text = "";
    for await (const piece of await client.completions.create({ ...request, stream: true })) {
      text += piece.choices[0]?.text ?? "";
    }
    assert.equal(text, answer.choices[0].text);
  },

  async bad_requests_throw_the_right_errors() {
    const image = [{ type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }];
    for (const [param, changes] of [
      ["temperature", { temperature: 3 }],
      ["messages", { messages: [] }],
      ["messages[0].content[0]", { messages: [{ role: "user", content: image }] }],
      ["n", { n: 0 }],
      ["stop[0]", { stop: [""] }],
      ["tools[0].type", { tools: [{ type: "web_search" }] }],
    ]) {
      for (const stream of [false, true]) {
        await assert.rejects(create({ ...changes, stream }), (error) => {
          assert.ok(error instanceof OpenAI.BadRequestError, String(error));
          assert.equal(error.status, 400);
          assert.equal(error.param, param);
          assert.equal(error.type, "invalid_request_error");
          assert.ok(error.requestID);
          return true;
        });
      }
    }
    await assert.rejects(client.models.retrieve("nothing"), OpenAI.NotFoundError);
    await assert.rejects(client.embeddings.create({ model: "x", input: "y" }), OpenAI.NotFoundError);
  },
};

let failed = 0;
const begun = Date.now();
for (const [name, check] of Object.entries(checks)) {
  const started = Date.now();
  try {
    await check();
    console.log(`ok      ${name} (${((Date.now() - started) / 1000).toFixed(2)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack ?? error}`);
  }
}
const n = Object.keys(checks).length;
const end = failed ? `FAILED (${failed} of ${n} checks)` : `ok (${n} checks, ${((Date.now() - begun) / 1000).toFixed(1)} s)`;
console.log(`openai-node ${version} ${end}`);
process.exit(failed ? 1 : 0);
