// The server's API: which model there is, and an answer as a stream of chunks.

/** An event is a token or, with long tool calls, a few; this only bounds a server that is none of ours. */
const EVENT_CHARS_MAX = 8_000_000;

/** Of an error body, what a person may want to read. */
const ERROR_CHARS_MAX = 2_000;

/**
 * Why a request came to nothing. `kind` is one of `key` (401, 403), `refused` (4xx), `busy` (429, 503),
 * `server` (5xx and errors in a stream), `lost` (no connection, or it broke).
 */
class ApiFailure extends Error {
  constructor(kind, title, detail = "") {
    super(title);
    this.kind = kind;
    this.title = title;
    this.detail = detail;
  }
}

function headers(key) {
  const all = { "content-type": "application/json" };
  if (key) all.authorization = `Bearer ${key}`;
  return all;
}

async function send(path, options) {
  try {
    return await fetch(path, { ...options, credentials: "omit", cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure("lost", "The server cannot be reached", "Is it still running? Check the terminal that `lily serve` runs in, then try again.");
  }
}

/** The failure that a response with an error status stands for. */
async function failureOf(response) {
  const text = (await response.text().catch(() => "")).slice(0, 100_000);
  const { message, code } = errorFields(text);
  const { status } = response;
  const detail = message || text.slice(0, ERROR_CHARS_MAX) || `status ${status} without an explanation`;
  if (status === 401 || status === 403) return new ApiFailure("key", "This server asks for an API key", detail);
  if (status === 429 || status === 503) {
    const seconds = Number(response.headers.get("retry-after"));
    const wait = seconds > 0 ? ` Try again in ${formatCount(seconds)} s.` : "";
    return new ApiFailure("busy", status === 429 ? "The server is busy" : "The server takes no requests now", detail + wait);
  }
  if (code === "context_length_exceeded") return new ApiFailure("refused", "The conversation is too long for the model", detail);
  if (status < 500) return new ApiFailure("refused", `The server refused the request (${status})`, detail);
  return new ApiFailure("server", `The server failed (${status})`, detail);
}

function errorFields(text) {
  try {
    const { error } = JSON.parse(text);
    const message = typeof error === "string" ? error : error?.message;
    return { message: typeof message === "string" ? message.slice(0, ERROR_CHARS_MAX) : "", code: error?.code };
  } catch {
    return { message: "" };
  }
}

/** Name and context of the model. */
async function fetchModel(key) {
  const response = await send("/v1/models", { headers: headers(key) });
  if (!response.ok) throw await failureOf(response);
  const body = await response.json().catch(() => null);
  const card = Array.isArray(body?.data) ? body.data[0] : null;
  if (typeof card?.id !== "string") throw new ApiFailure("server", "The server names no model");
  const context = Number.isFinite(card.max_model_len) && card.max_model_len > 0 ? card.max_model_len : null;
  return { id: card.id.slice(0, 300), context };
}

/** Sends a chat request and yields the chunks of its answer. Ends normally only after `[DONE]`. */
async function* streamChat(body, key, signal) {
  const response = await send("/v1/chat/completions", {
    method: "POST",
    headers: headers(key),
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await failureOf(response);
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    throw new ApiFailure("server", "The server sent no stream", "Something between the page and Lily may have answered instead.");
  }
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    yield readChunk(data);
  }
  throw new ApiFailure("lost", "The connection broke off", "What arrived is kept.");
}

function readChunk(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiFailure("server", "The server sent something unreadable", data.slice(0, 200));
  }
  if (typeof chunk !== "object" || chunk === null) {
    throw new ApiFailure("server", "The server sent something unreadable", data.slice(0, 200));
  }
  if (chunk.error) {
    const { message } = errorFields(data);
    throw new ApiFailure("server", "The answer broke off", message);
  }
  return chunk;
}

/** The data of server-sent events. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await readPiece(reader);
      if (done) return;
      rest += value;
      if (rest.length > EVENT_CHARS_MAX) throw new ApiFailure("server", "The server sent an event that is too long");
      if (!value.includes("\n")) continue;
      const lines = rest.split("\n");
      rest = lines.pop();
      for (let line of lines) {
        if (line.endsWith("\r")) line = line.slice(0, -1);
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line === "" && data.length) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    // Leaving early ends the request; that it can fail when the connection is gone does not matter.
    reader.cancel().catch(() => {});
  }
}

async function readPiece(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure("lost", "The connection broke off", "What arrived is kept.");
  }
}

/** The turns as the API wants them. */
function requestMessages(chat) {
  const messages = [];
  if (chat.system.trim()) messages.push({ role: "system", content: chat.system });
  for (const turn of chat.messages) {
    if (turn.role === "user") messages.push({ role: "user", content: turn.content });
    else if (turn.role === "tool") messages.push({ role: "tool", tool_call_id: turn.callId, content: turn.content });
    else if (turn.content || turn.calls.length) messages.push(requestAnswer(turn));
  }
  return messages;
}

function requestAnswer({ content, reasoning, calls }) {
  const message = { role: "assistant", content };
  if (reasoning) message.reasoning_content = reasoning;
  // A call that broke off has no arguments that could be read again.
  const whole = calls.filter((call) => parsedObject(call.arguments) !== null);
  if (whole.length) {
    message.tool_calls = whole.map((call) => ({
      id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
    }));
  }
  return message;
}

/** The object that a text is in JSON, or null. */
function parsedObject(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
