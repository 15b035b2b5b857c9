// One turn of a conversation on the page.

/** What a call says is shown up to here; a copy has all of it. */
const CALL_CHARS_SHOWN = 20_000;

/** The line that shows what is being thought while the thinking is folded. */
const PREVIEW_CHARS = 140;

/** `actions` has the functions behind the buttons. */
function turnView(turn, actions) {
  if (turn.role === "user") return new UserView(turn, actions);
  if (turn.role === "tool") return new ToolResultView(turn);
  return new AnswerView(turn, actions);
}

class UserView {
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.node = el("article", { class: "turn user", "aria-label": "You" });
    this.show();
  }

  show() {
    const { turn, actions } = this;
    // As it was typed: a prompt is not markdown.
    const bubble = el("div", { class: "bubble" }, turn.content);
    const buttons = el("div", { class: "actions" },
      copyButton(() => turn.content, "Copy message"),
      iconButton("edit", "Edit message", () => this.edit()),
      iconButton("delete", "Delete message and its answer", () => actions.remove(turn)));
    this.node.replaceChildren(bubble, buttons);
    this.node.classList.remove("editing");
  }

  edit() {
    const { turn, actions } = this;
    if (actions.isRunning()) {
      toast("An answer is still being written. Stop it first.");
      return;
    }
    const area = el("textarea", { class: "edit", "aria-label": "Edit message", rows: 1 });
    area.value = turn.content;
    const close = () => {
      this.show();
      this.node.querySelector('[aria-label="Edit message"]').focus();
    };
    const send = (branch) => {
      if (area.value.trim()) actions.edit(turn, area.value, branch);
    };
    area.addEventListener("input", () => fitHeight(area));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (isSendKey(event)) {
        event.preventDefault();
        send(false);
      }
    });
    const branch = textButton("Send as a branch", () => send(true));
    branch.title = "Keeps this conversation and goes on in a copy";
    this.node.replaceChildren(area, el("div", { class: "edit-foot" },
      el("span", { class: "muted" }, "Sending replaces what follows."),
      textButton("Cancel", close), branch, textButton("Send", () => send(false), "primary")));
    this.node.classList.add("editing");
    fitHeight(area);
    area.focus();
  }
}

/** A text field as high as its text, up to what the style allows. */
function fitHeight(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

function isSendKey(event) {
  // With an input method, Enter chooses a word.
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}

class ToolResultView {
  constructor(turn) {
    this.turn = turn;
    this.node = el("article", { class: "turn result", "aria-label": "Tool result" },
      el("details", null,
        el("summary", null, icon("chevron"), el("span", null, "Result"), el("span", { class: "preview" }, turn.content.slice(0, PREVIEW_CHARS))),
        el("pre", { tabindex: "0" }, turn.content.slice(0, CALL_CHARS_SHOWN))));
  }
}

class AnswerView {
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.thinking = null;
    this.markdown = null;
    this.calls = [];
    this.body = el("div", { class: "markdown" });
    this.callList = el("div", { class: "calls" });
    this.foot = el("div", { class: "foot" });
    this.node = el("article", { class: "turn answer", "aria-label": "Lily" }, this.body, this.callList, this.foot);
  }

  /** Shows the turn as it is now. `live`: more may come. */
  update(live, isLast) {
    const { turn } = this;
    if (turn.reasoning) this.updateThinking(live);
    if (turn.content) {
      this.markdown ??= new GrowingMarkdown(this.body);
      this.markdown.update(turn.content, !live);
    }
    this.updateCalls(live);
    const waiting = live && !turn.content && !turn.reasoning && !turn.calls.length;
    this.node.classList.toggle("waiting", waiting);
    this.node.classList.toggle("live", live);
    this.node.setAttribute("aria-busy", String(live));
    if (live) this.foot.replaceChildren();
    else this.showFoot(isLast);
  }

  updateThinking(live) {
    this.thinking ??= new ThinkingView(this.node, this.turn, this.actions);
    this.thinking.update(live && !this.turn.content && !this.turn.calls.length);
  }

  updateCalls(live) {
    this.turn.calls.forEach((call, i) => {
      this.calls[i] ??= new CallView(call, this.callList);
      this.calls[i].update(live && i === this.turn.calls.length - 1);
    });
  }

  showFoot(isLast) {
    const { turn, actions } = this;
    const nodes = [];
    if (isLast && turn.finish === "tool_calls") nodes.push(resultForm(turn, actions));
    if (turn.failure) nodes.push(failureNode(turn, actions));
    else if (turn.finish === "length") nodes.push(el("p", { class: "remark" }, "Cut off: the token limit or the context was reached."));
    else if (turn.finish === "stopped") nodes.push(el("p", { class: "remark" }, "Stopped."));
    else if (!turn.content && !turn.calls.length) nodes.push(el("p", { class: "remark" }, "The model ended without an answer."));
    const buttons = [
      turn.content ? copyButton(() => turn.content, "Copy answer") : null,
      iconButton("again", "Regenerate from here", () => actions.regenerate(turn)),
      iconButton("delete", "Delete answer", () => actions.remove(turn)),
    ];
    nodes.push(el("div", { class: "actions" }, statsNode(turn), ...buttons.filter(Boolean)));
    this.foot.replaceChildren(...nodes);
  }
}

function statsNode({ stats }) {
  if (!stats) return "";
  const parts = [];
  if (stats.answerTokens !== null) parts.push(`${formatCount(stats.answerTokens)} tokens`);
  if (stats.tokensPerSecond !== null) parts.push(`${formatRate(stats.tokensPerSecond)} tok/s`);
  if (stats.firstMs !== null) parts.push(`first after ${formatSeconds(stats.firstMs)}`);
  const prompt = stats.promptTokens === null ? null
    : `Prompt: ${formatCount(stats.promptTokens)} tokens, ${formatCount(stats.cachedTokens ?? 0)} of them from the cache`;
  return el("span", { class: "stats", title: prompt }, parts.join(" · "));
}

/** Folded unless the user likes it open; its text is only made when it is. */
class ThinkingView {
  constructor(parent, turn, actions) {
    this.turn = turn;
    this.markdown = null;
    this.label = el("span", { class: "label" }, "Thinking");
    this.preview = el("span", { class: "preview", "aria-hidden": "true" });
    this.text = el("div", { class: "markdown" });
    this.node = el("details", { class: "thinking", open: actions.opensThinking() },
      el("summary", null, icon("chevron"), this.label, this.preview), this.text);
    this.node.addEventListener("toggle", () => {
      this.fill();
      // Only a click says what the user likes; the toggle event also comes for a fresh element.
      if (this.touched) actions.likesOpenThinking(this.node.open);
    });
    this.node.querySelector("summary").addEventListener("click", () => {
      this.touched = true;
    });
    parent.prepend(this.node);
  }

  update(live) {
    this.live = live;
    this.node.classList.toggle("live", live);
    const { thoughtMs, reasoning } = this.turn;
    if (live) this.label.textContent = "Thinking";
    else this.label.textContent = thoughtMs === null || thoughtMs < 100 ? "Thought" : `Thought for ${formatSeconds(thoughtMs)}`;
    const end = reasoning.trimEnd();
    const line = end.slice(-PREVIEW_CHARS * 2).split("\n").at(-1).slice(-PREVIEW_CHARS);
    this.preview.textContent = live ? line : "";
    this.fill();
  }

  fill() {
    if (!this.node.open) return;
    this.markdown ??= new GrowingMarkdown(this.text);
    this.markdown.update(this.turn.reasoning, !this.live);
  }
}

class CallView {
  constructor(call, parent) {
    this.call = call;
    this.name = el("span", { class: "call-name" });
    this.code = el("code");
    this.shown = null;
    parent.append(el("section", { class: "call", "aria-label": "Tool call" },
      el("div", { class: "code-head" }, icon("tool"), this.name, copyButton(() => this.pretty(), "Copy arguments")),
      el("pre", { tabindex: "0" }, this.code)));
  }

  pretty() {
    const object = parsedObject(this.call.arguments);
    return object ? JSON.stringify(object, null, 2) : this.call.arguments;
  }

  update(live) {
    this.name.textContent = this.call.name || "…";
    const text = live ? this.call.arguments : this.pretty();
    if (text === this.shown) return;
    this.shown = text;
    const cut = text.length > CALL_CHARS_SHOWN ? `${text.slice(0, CALL_CHARS_SHOWN)}\n… ${formatCount(text.length - CALL_CHARS_SHOWN)} more characters` : text;
    this.code.replaceChildren(live ? cut : highlighted(cut, "json"));
  }
}

/** The page runs no tools; the user may say what they return. */
function resultForm(turn, actions) {
  const areas = turn.calls.map((call) => el("textarea", { rows: 2, "aria-label": `Result of ${call.name}`, placeholder: `Result of ${call.name}` }));
  const send = textButton("Send results", () => actions.sendResults(turn, areas.map((area) => area.value)), "primary");
  return el("div", { class: "result-form" },
    el("p", { class: "muted" }, "The model asks for these calls. Run them yourself and give it what they return."), ...areas, send);
}

function failureNode(turn, actions) {
  const { kind, title, detail } = turn.failure;
  const node = el("div", { class: "failure", role: "alert" },
    el("p", { class: "failure-title" }, icon("warning"), title), detail ? el("p", { class: "failure-detail" }, detail) : null);
  const again = () => actions.regenerate(turn);
  node.append(kind === "key" ? keyForm(actions, again) : textButton("Try again", again));
  return node;
}

function keyForm(actions, done) {
  const field = el("input", { type: "password", autocomplete: "off", "aria-label": "API key", placeholder: "API key", maxlength: 4_000, spellcheck: "false" });
  const use = () => {
    if (!field.value.trim()) return;
    actions.setKey(field.value.trim());
    done();
  };
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") use();
  });
  return el("div", { class: "key-form" }, field, textButton("Use key", use, "primary"));
}
