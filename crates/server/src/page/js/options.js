// What a user may set for all conversations, and how it appears in a request. An empty field leaves
// the choice to the server.

/** A field's name in a request, what stands beside it, and which numbers it takes. */
const NUMBER_OPTIONS = [
  { name: "temperature", label: "Temperature", hint: "0 to 2", min: 0, max: 2, step: "any" },
  { name: "top_p", label: "Top p", hint: "0 to 1", min: 0, max: 1, step: "any" },
  { name: "top_k", label: "Top k", hint: "0 is all", min: 0, max: 1_000_000, whole: true },
  { name: "max_completion_tokens", label: "Max tokens", hint: null, min: 1, max: 10_000_000, whole: true },
  { name: "seed", label: "Seed", hint: null, min: 0, max: Number.MAX_SAFE_INTEGER, whole: true },
];

const BUDGET_OPTION = {
  name: "thinking_budget", label: "Thinking budget", hint: "tokens", min: 0, max: 10_000_000, whole: true,
};

/** The value of a field, null for an empty one; throws a message for one that makes no sense. */
function readNumberOption(option, text) {
  const trimmed = String(text ?? "").trim();
  if (!trimmed) return null;
  const value = Number(trimmed);
  const fits = Number.isFinite(value) && value >= option.min && value <= option.max && (!option.whole || Number.isInteger(value));
  if (fits) return value;
  const kind = option.whole ? "a whole number" : "a number";
  const range = option.max >= 1_000_000 ? `from ${option.min}` : `from ${option.min} to ${option.max}`;
  throw new RangeError(`${kind} ${range}, or nothing`);
}

/** Tool definitions: null, or a list as the API takes it. */
function readTools(text) {
  if (!text.trim()) return null;
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new RangeError(`no JSON: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new RangeError("must be a list: [{\"type\": \"function\", \"function\": {…}}]");
  return tools.length ? tools : null;
}

class Options {
  constructor(store) {
    this.store = store;
    this.values = { thinking: true, openThinking: false, numbers: {}, tools: "", system: "" };
    try {
      const stored = JSON.parse(store.getOption("options") ?? "{}");
      this.values.thinking = stored.thinking !== false;
      this.values.openThinking = stored.openThinking === true;
      for (const name of ["tools", "system"]) if (typeof stored[name] === "string") this.values[name] = stored[name];
      for (const option of [...NUMBER_OPTIONS, BUDGET_OPTION]) {
        try {
          const value = readNumberOption(option, stored.numbers?.[option.name]);
          if (value !== null) this.values.numbers[option.name] = value;
        } catch {
          // Not ours: as if it were not there.
        }
      }
    } catch {
      // Not ours: start with nothing.
    }
  }

  set(name, value) {
    this.values[name] = value;
    this.save();
  }

  setNumber(name, value) {
    if (value === null) delete this.values.numbers[name];
    else this.values.numbers[name] = value;
    this.save();
  }

  save() {
    this.store.setOption("options", JSON.stringify(this.values));
  }

  /** Fields of a request. */
  requestFields() {
    const { thinking, numbers, tools } = this.values;
    const fields = { chat_template_kwargs: { enable_thinking: thinking } };
    for (const { name } of NUMBER_OPTIONS) if (numbers[name] !== undefined) fields[name] = numbers[name];
    if (thinking && numbers[BUDGET_OPTION.name] !== undefined) fields[BUDGET_OPTION.name] = numbers[BUDGET_OPTION.name];
    try {
      const list = readTools(tools);
      if (list) fields.tools = list;
    } catch {
      // The field in the settings says what is wrong; a request goes without.
    }
    return fields;
  }

  /** The few that differ from the server's choice, for the button that leads to them. */
  summary() {
    const { numbers, tools } = this.values;
    const short = { temperature: "temp", top_p: "top p", top_k: "top k", max_completion_tokens: "max", seed: "seed" };
    const parts = NUMBER_OPTIONS.filter(({ name }) => numbers[name] !== undefined).map(({ name }) => `${short[name]} ${numbers[name]}`);
    if (tools.trim()) parts.push("tools");
    return parts.length > 2 ? `${parts.slice(0, 2).join(" · ")} +${parts.length - 2}` : parts.join(" · ");
  }
}
