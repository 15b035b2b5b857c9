// What a conversation is, and the check that a value from outside (a file, the browser's storage)
// is one. Unknown fields are dropped, so nothing gets further than these lines say.

/** More turns than a full context has. */
const TURNS_MAX = 4_000;

/** One text: about a full context. */
const TEXT_CHARS_MAX = 2_000_000;

const TITLE_CHARS_MAX = 120;
const CALLS_MAX = 256;
const NAME_CHARS_MAX = 256;

const FINISHES = ["stop", "length", "tool_calls", "stopped", "failed"];

class NotAConversation extends Error {}

function readText(value, what, max = TEXT_CHARS_MAX) {
  if (value === undefined || value === null) return "";
  if (typeof value !== "string") throw new NotAConversation(`${what} is no text`);
  if (value.length > max) throw new NotAConversation(`${what} has more than ${formatCount(max)} characters`);
  return value;
}

function readNumber(value) {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : null;
}

function readEntries(value, what, max) {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw new NotAConversation(`${what} is no list`);
  if (value.length > max) throw new NotAConversation(`${what} has more than ${formatCount(max)} entries`);
  return value;
}

function readObject(value, what) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new NotAConversation(`${what} is no object`);
  }
  return value;
}

/** A conversation like this value. The id is kept only where the value is our own. */
function readConversation(value, keepId) {
  const object = readObject(value, "a conversation");
  const turns = readEntries(object.messages, "messages", TURNS_MAX).map(readTurn);
  const id = typeof object.id === "string" && /^[0-9a-f]{24}$/.test(object.id) ? object.id : freshId();
  return {
    id: keepId ? id : freshId(),
    title: readText(object.title, "title").slice(0, TITLE_CHARS_MAX) || "Untitled",
    updated: Math.min(readNumber(object.updated) ?? Date.now(), Date.now()),
    system: readText(object.system, "system"),
    messages: turns,
  };
}

function readTurn(value, i) {
  const where = `messages[${i}]`;
  const object = readObject(value, where);
  const content = readText(object.content, `${where}.content`);
  switch (object.role) {
    case "user": return { role: "user", content };
    case "tool": return { role: "tool", content, callId: readText(object.callId, `${where}.callId`, NAME_CHARS_MAX) };
    case "assistant": return {
      role: "assistant",
      content,
      reasoning: readText(object.reasoning, `${where}.reasoning`),
      thoughtMs: readNumber(object.thoughtMs),
      calls: readEntries(object.calls, `${where}.calls`, CALLS_MAX).map((call, k) => readCall(call, `${where}.calls[${k}]`)),
      // Null is an answer that was running when the page was left.
      finish: FINISHES.includes(object.finish) ? object.finish : object.finish === null ? "stopped" : "stop",
      failure: readFailure(object.failure),
      stats: readStats(object.stats),
    };
    default: throw new NotAConversation(`${where}.role is none of user, assistant, tool`);
  }
}

function readCall(value, where) {
  const object = readObject(value, where);
  return {
    id: readText(object.id, `${where}.id`, NAME_CHARS_MAX),
    name: readText(object.name, `${where}.name`, NAME_CHARS_MAX),
    arguments: readText(object.arguments, `${where}.arguments`),
  };
}

function readFailure(value) {
  if (typeof value !== "object" || value === null) return null;
  const text = (field) => (typeof field === "string" ? field.slice(0, 4_000) : "");
  return { kind: text(value.kind), title: text(value.title), detail: text(value.detail) };
}

function readStats(value) {
  if (typeof value !== "object" || value === null) return null;
  const names = ["promptTokens", "cachedTokens", "answerTokens", "tokensPerSecond", "firstMs"];
  return Object.fromEntries(names.map((name) => [name, readNumber(value[name])]));
}

/** An answer of which nothing is there yet. */
function emptyAnswer() {
  return { role: "assistant", content: "", reasoning: "", thoughtMs: null, calls: [], finish: null, failure: null, stats: null };
}

const EXPORT_FORMAT = "lily-conversations";

function exportText(conversations) {
  return JSON.stringify({ format: EXPORT_FORMAT, version: 1, conversations }, null, 1);
}

/** The conversations of an exported file. */
function readExport(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new NotAConversation("the file is no JSON");
  }
  const object = readObject(value, "the file");
  if (object.format !== EXPORT_FORMAT) throw new NotAConversation(`\`format\` is not "${EXPORT_FORMAT}"`);
  if (object.version !== 1) throw new NotAConversation("`version` is not 1: the file is from a newer page");
  return readEntries(object.conversations, "conversations", CONVERSATIONS_MAX).map((one) => readConversation(one, false));
}
