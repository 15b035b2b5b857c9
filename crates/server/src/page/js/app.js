// The page as a whole: which conversation is open, what runs, and what the buttons do.

/** A running answer is kept so often, so that a crash costs little. */
const KEEP_INTERVAL_MS = 2_000;

/** Without a server, the page asks again this often. */
const MODEL_RETRY_MS = 4_000;

const THEMES = { auto: ["auto", "Colours of the system"], light: ["sun", "Light colours"], dark: ["moon", "Dark colours"] };

class App {
  constructor() {
    this.store = new Store(openStorage());
    this.options = new Options(this.store);
    this.key = this.store.getOption("key") ?? "";
    this.model = null;
    /** Answers on their way, by conversation; the user may look at another one meanwhile. */
    this.runs = new Map();
    this.chat = this.freshChat();
    this.transcript = new Transcript({
      ask: (text) => this.ask(text),
      answer: () => this.answer(),
      edit: (turn, text, branch) => this.edit(turn, text, branch),
      regenerate: (turn) => this.regenerate(turn),
      remove: (turn) => this.removeTurn(turn),
      sendResults: (turn, results) => this.sendResults(turn, results),
      isRunning: () => this.runs.has(this.chat.id),
      opensThinking: () => this.options.values.openThinking,
      likesOpenThinking: (open) => this.options.set("openThinking", open),
      setKey: (key) => this.setKey(key),
    });
    this.sidebar = new Sidebar(this);
    this.settings = new SettingsPanel(this);
    this.composer = new Composer(this);
    this.showTheme(this.store.getOption("theme") ?? "auto");
    byId("theme").addEventListener("click", () => this.nextTheme());
    document.addEventListener("keydown", (event) => this.onKey(event));
    addEventListener("storage", (event) => this.onStorage(event));
    // Leaving breaks the streams before anything else is told; that is no failure of the server.
    addEventListener("beforeunload", () => this.runs.forEach((run) => (run.isLeft = true)));
    addEventListener("pagehide", () => this.keepRuns());
    addEventListener("hashchange", () => this.openChat(location.hash.slice(1)));
    this.showStorageState();
    this.showOptions();
    this.openChat(location.hash.slice(1));
    this.findModel();
    if (matchMedia("(hover: hover)").matches) byId("input").focus();
  }

  // The model.

  async findModel() {
    clearTimeout(this.modelTimer);
    try {
      this.model = await fetchModel(this.key);
      clearNotice("model");
      byId("model-name").textContent = this.model.id;
      byId("model-dot").className = "dot ready";
    } catch (failure) {
      this.model = null;
      byId("model-dot").className = "dot";
      byId("model-name").textContent = failure.kind === "key" ? "locked" : "no server";
      if (failure.kind === "key") {
        clearNotice("model");
        notice("model", `${failure.title}.`, keyForm({ setKey: (key) => this.setKey(key) }, () => {}));
      } else {
        this.modelTimer = setTimeout(() => this.findModel(), MODEL_RETRY_MS);
      }
    }
    this.showContext();
  }

  setKey(key) {
    this.key = key;
    this.store.setOption("key", key);
    this.findModel();
  }

  // Conversations.

  freshChat() {
    return { id: freshId(), title: "New chat", updated: Date.now(), system: this.options.values.system, messages: [] };
  }

  /** Opens a conversation, a new one if there is none of this id. */
  openChat(id) {
    this.chat = this.store.chats.get(id) ?? this.freshChat();
    this.show();
  }

  show() {
    const stored = this.store.chats.has(this.chat.id);
    history.replaceState(null, "", stored ? `#${this.chat.id}` : location.pathname + location.search);
    const run = this.runs.get(this.chat.id);
    this.transcript.open(this.chat, run?.turn);
    this.showTitle();
    this.sidebar.show();
    this.composer.setRunning(Boolean(run));
    this.showContext();
  }

  showTitle() {
    byId("chat-title").textContent = this.chat.title;
    document.title = this.chat.messages.length ? `${this.chat.title} · Lily` : "Lily";
  }

  /** After a change of the turns of the open conversation. */
  refresh() {
    this.transcript.refresh(this.chat, this.runs.get(this.chat.id)?.turn);
    this.composer.setRunning(this.runs.has(this.chat.id));
    this.showContext();
  }

  keep(chat, touched = true) {
    if (touched) chat.updated = Date.now();
    const problem = this.store.save(chat);
    if (problem === "full") {
      notice("full", "The browser's storage for this page is full, so the latest changes are not kept. Export conversations, then delete some.",
        textButton("Export all", () => this.exportChats()), textButton("Show the list", () => this.sidebar.open()));
    } else if (!problem) {
      clearNotice("full");
    }
  }

  showStorageState() {
    if (!this.store.isKept) notice("blocked", "This browser keeps nothing for this page: conversations end with the tab.");
    else if (this.store.unreadable) {
      notice("unreadable", `${this.store.unreadable} stored conversations could not be read and are left out.`, textButton("Dismiss", () => clearNotice("unreadable")));
    }
  }

  renameChat(chat, title) {
    chat.title = title.slice(0, TITLE_CHARS_MAX);
    this.keep(chat, false);
    this.showTitle();
  }

  deleteChat(id) {
    const chat = this.store.chats.get(id);
    this.runs.get(id)?.controller.abort();
    this.runs.delete(id);
    this.store.remove(id);
    this.roomWasMade();
    if (this.chat.id === id) this.openChat(null);
    else this.sidebar.show();
    toast(`Deleted “${chat.title}”.`, "Undo", () => {
      this.keep(chat, false);
      this.openChat(id);
    });
  }

  deleteAll() {
    for (const run of this.runs.values()) run.controller.abort();
    this.runs.clear();
    for (const id of [...this.store.chats.keys()]) this.store.remove(id);
    clearNotice("full");
    this.openChat(null);
    toast("All conversations are deleted.");
  }

  /** What did not fit may fit now. */
  roomWasMade() {
    for (const chat of this.store.list()) if (!this.store.sizes.has(chat.id) || chat === this.chat) this.keep(chat, false);
  }

  exportChats(one) {
    const chats = one ? [one] : this.store.list();
    const url = URL.createObjectURL(new Blob([exportText(chats)], { type: "application/json" }));
    const day = new Date().toISOString().slice(0, 10);
    el("a", { href: url, download: `lily-conversations-${day}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  importChats(chats) {
    for (const chat of chats) this.keep(chat, false);
    if (chats.length) this.openChat(chats[0].id);
    toast(`${formatCount(chats.length)} imported.`);
  }

  setSystem(text) {
    this.chat.system = text;
    if (this.store.chats.has(this.chat.id)) this.keep(this.chat, false);
    this.showOptions();
  }

  // Turns.

  ask(text) {
    if (this.runs.has(this.chat.id)) return;
    if (this.chat.messages.length === 0) this.chat.title = titleOf(text);
    this.chat.messages.push({ role: "user", content: text.slice(0, TEXT_CHARS_MAX) });
    this.answer();
  }

  /** Asks the model to answer the open conversation as it is. */
  async answer() {
    const { chat } = this;
    if (this.runs.has(chat.id) || chat.messages.length === 0) return;
    const body = { messages: requestMessages(chat), ...this.options.requestFields() };
    if (this.model) body.model = this.model.id;
    const turn = emptyAnswer();
    const run = new Run(chat, turn);
    run.contextBefore = contextUsed(chat) ?? 0;
    chat.messages.push(turn);
    this.runs.set(chat.id, run);
    this.keep(chat);
    this.show();
    announce("Answering");
    let keptAt = performance.now();
    await run.pull(body, this.key, () => {
      if (performance.now() - keptAt > KEEP_INTERVAL_MS && this.runs.get(chat.id) === run) {
        this.keep(chat);
        keptAt = performance.now();
      }
      if (this.chat === chat) this.showProgress(run);
    });
    this.finish(run);
  }

  showProgress(run) {
    this.transcript.queue(run.turn);
    const now = performance.now();
    if (now - (this.progressAt ?? 0) < 120) return;
    this.progressAt = now;
    const rate = run.rate();
    this.composer.showSpeed(rate === null ? "" : `${formatRate(rate)} tok/s`);
    this.composer.showContext(run.contextBefore + run.pieces, this.model?.context);
  }

  finish(run) {
    const { chat, turn } = run;
    // Deleted, or replaced by a later answer.
    if (this.runs.get(chat.id) !== run) return;
    this.runs.delete(chat.id);
    this.keep(chat);
    if (this.chat === chat) this.refresh();
    this.sidebar.show();
    if (turn.failure) announce(`${turn.failure.title}. ${turn.failure.detail}`);
    else announce(turn.finish === "stopped" ? "Stopped" : `Answer: ${turn.content.slice(0, 1_000) || "a tool call"}`);
    if (turn.failure?.kind === "lost") this.findModel();
  }

  stop() {
    this.runs.get(this.chat.id)?.controller.abort();
  }

  /** Whether the open conversation can be changed now; says so if not. */
  canChange() {
    if (!this.runs.has(this.chat.id)) return true;
    toast("An answer is still being written. Stop it first.");
    return false;
  }

  edit(turn, text, branch) {
    if (!this.canChange()) return;
    const at = this.chat.messages.indexOf(turn);
    if (at < 0) return;
    if (branch) {
      const messages = this.chat.messages.slice(0, at);
      const title = `${this.chat.title} (branch)`.slice(0, TITLE_CHARS_MAX);
      // A copy: the two go their own ways.
      this.chat = { ...this.chat, id: freshId(), title, messages: structuredClone(messages) };
    } else {
      this.chat.messages.length = at;
    }
    const { title } = this.chat;
    this.ask(text);
    if (branch) this.renameChat(this.chat, title);
  }

  /** Answers again from an answer on; what followed it is gone. */
  regenerate(turn) {
    if (!this.canChange()) return;
    const at = this.chat.messages.indexOf(turn);
    if (at <= 0) return;
    this.chat.messages.length = at;
    this.answer();
  }

  /** A message goes with its answer, an answer with its tool results. */
  removeTurn(turn) {
    if (!this.canChange()) return;
    const { chat } = this;
    const before = [...chat.messages];
    const at = before.indexOf(turn);
    const ends = turn.role === "user" ? (one) => one.role === "user" : (one) => one.role !== "tool";
    const after = before.findIndex((one, i) => i > at && ends(one));
    chat.messages.splice(at, (after < 0 ? before.length : after) - at);
    this.keep(chat);
    this.refresh();
    toast("Deleted.", "Undo", () => {
      chat.messages = before;
      this.keep(chat);
      if (this.chat === chat) this.refresh();
    });
  }

  sendResults(turn, results) {
    if (!this.canChange() || this.chat.messages.at(-1) !== turn) return;
    turn.calls.forEach((call, i) => this.chat.messages.push({ role: "tool", callId: call.id, content: results[i] }));
    this.answer();
  }

  keepRuns() {
    for (const { chat } of this.runs.values()) this.keep(chat);
  }

  // The rest of the page.

  setThinking(on) {
    this.options.set("thinking", on);
    this.showOptions();
  }

  showOptions() {
    byId("thinking").setAttribute("aria-pressed", String(this.options.values.thinking));
    const parts = [this.chat.system.trim() ? "prompt" : "", this.options.summary()].filter(Boolean);
    byId("options-summary").textContent = parts.join(" · ");
  }

  showContext() {
    this.composer.showContext(contextUsed(this.chat), this.model?.context);
    this.showOptions();
  }

  nextTheme() {
    const names = Object.keys(THEMES);
    const theme = names[(names.indexOf(this.theme) + 1) % names.length];
    this.store.setOption("theme", theme === "auto" ? null : theme);
    this.showTheme(theme);
  }

  showTheme(name) {
    this.theme = Object.hasOwn(THEMES, name) ? name : "auto";
    const [drawing, label] = THEMES[this.theme];
    if (this.theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.theme;
    setIcon(byId("theme"), drawing);
    byId("theme").setAttribute("aria-label", label);
    byId("theme").title = `${label}: change`;
  }

  onKey(event) {
    if (event.key === "Escape" && this.sidebar.isOpen) this.sidebar.close();
    else if (event.key === "Escape" && !byId("settings").open) this.stop();
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === "/" && plain && !typing && !byId("settings").open) {
      event.preventDefault();
      this.sidebar.setOpen(false);
      byId("input").focus();
    }
  }

  onStorage({ key, newValue }) {
    if (key === "lily.theme") this.showTheme(newValue ?? "auto");
    if (!key?.startsWith(CHAT_KEY) || this.runs.has(key.slice(CHAT_KEY.length))) return;
    const id = this.store.changedElsewhere(key);
    if (id === this.chat.id) {
      this.chat = this.store.chats.get(id) ?? this.freshChat();
      this.show();
    } else {
      this.sidebar.show();
    }
  }
}

/** The first words of the first message. */
function titleOf(text) {
  const line = text.trim().split("\n")[0].trim();
  const short = line.length <= 60 ? line : `${line.slice(0, 60).replace(/\s+\S*$/, "")}…`;
  return short || "Untitled";
}

/** Tokens that the conversation takes according to its last answer; null if none says. */
function contextUsed(chat) {
  const stats = chat.messages.findLast((turn) => turn.stats?.promptTokens)?.stats;
  return stats ? stats.promptTokens + (stats.answerTokens ?? 0) : null;
}

new App();
