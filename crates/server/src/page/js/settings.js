// The panel for the system prompt, sampling, thinking, tools, the key and the stored data. Every
// change holds at once; a value that makes no sense is explained beside its field and not used.

/** A larger file cannot fit into the browser's storage. */
const IMPORT_BYTES_MAX = 20_000_000;

class SettingsPanel {
  constructor(app) {
    this.app = app;
    this.dialog = byId("settings");
    this.dialog.addEventListener("click", (event) => {
      // A click on the dialog itself is one beside the panel.
      if (event.target === this.dialog) this.dialog.close();
    });
    byId("open-settings").addEventListener("click", () => this.open());
    byId("open-options").addEventListener("click", () => this.open());
    byId("import-file").addEventListener("change", (event) => this.importFile(event.target));
  }

  open() {
    const { app } = this;
    app.sidebar.setOpen(false);
    const { values } = app.options;
    const sections = [
      section("System prompt", null,
        areaField("For this conversation", app.chat.system, (text) => app.setSystem(text), { rows: 4, placeholder: "You are …" }),
        areaField("For new conversations", values.system, (text) => app.options.set("system", text), { rows: 2 })),
      section("Sampling", "Empty fields leave the choice to the server.",
        el("div", { class: "grid" }, ...NUMBER_OPTIONS.map((option) => this.numberField(option)))),
      section("Thinking", null,
        switchField("Think before answering", values.thinking, (on) => app.setThinking(on)),
        el("div", { class: "grid" }, this.numberField(BUDGET_OPTION))),
      section("Tools", "Definitions that the model may call. The page shows the calls; you give the results.",
        areaField("Tools as JSON", values.tools, (text) => app.options.set("tools", text), { rows: 4, class: "mono", check: readTools, placeholder: "[{\"type\": \"function\", \"function\": {\"name\": …}}]" })),
      section("API key", "Only if the server asks for one. It stays in this browser and is sent to this server alone.", this.keyField()),
      section("Conversations", this.storageText(), el("div", { class: "row" },
        textButton("Export all", () => app.exportChats()), textButton("Export this one", () => app.exportChats(app.chat)),
        textButton("Import", () => byId("import-file").click()), textButton("Delete all", () => this.confirmDelete(), "danger"))),
      this.about(),
    ];
    this.dialog.replaceChildren(el("div", { class: "panel" },
      el("div", { class: "panel-head" }, el("h2", { id: "settings-title" }, "Settings"), iconButton("close", "Close settings", () => this.dialog.close())),
      el("div", { class: "panel-body" }, ...sections)));
    this.dialog.showModal();
  }

  storageText() {
    const { store } = this.app;
    if (!store.isKept) return "This browser keeps nothing for this page: conversations end with the tab.";
    const percent = Math.ceil((store.usedChars / STORED_CHARS_MAX) * 100);
    return `${formatCount(store.chats.size)} kept in this browser, ${percent} % of the room for them.`;
  }

  numberField(option) {
    const { app } = this;
    const input = el("input", { type: "text", inputmode: option.whole ? "numeric" : "decimal", autocomplete: "off", maxlength: 24, placeholder: "default" });
    input.value = app.options.values.numbers[option.name] ?? "";
    return checkedField(option.label, option.hint, input, () => {
      app.options.setNumber(option.name, readNumberOption(option, input.value));
      app.showOptions();
    });
  }

  keyField() {
    const { app } = this;
    const input = el("input", { type: "password", autocomplete: "off", maxlength: 4_000, spellcheck: "false", placeholder: "none" });
    input.value = app.key;
    return checkedField("Key", null, input, () => {
      if (/[^\x21-\x7e]/.test(input.value.trim())) throw new RangeError("letters, digits and signs of ASCII only");
      app.setKey(input.value.trim());
    });
  }

  confirmDelete() {
    const count = this.app.store.chats.size;
    const ask = el("div", { class: "row confirm", role: "alert" }, el("span", null, `Delete all ${formatCount(count)} conversations for good?`),
      textButton("Delete", () => {
        this.app.deleteAll();
        this.dialog.close();
      }, "danger"), textButton("Keep", () => ask.remove()));
    this.dialog.querySelector(".confirm")?.remove();
    this.dialog.querySelector(".danger").closest("section").append(ask);
    ask.querySelector("button").focus();
  }

  about() {
    const base = `${location.origin}/v1`;
    return section("API", "Any OpenAI client works with this address.",
      el("div", { class: "address" }, el("code", null, base), copyButton(() => base, "Copy address")),
      el("p", { class: "muted" }, "POST /v1/chat/completions, GET /v1/models, GET /health, GET /metrics"));
  }

  async importFile(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    try {
      if (file.size > IMPORT_BYTES_MAX) throw new NotAConversation(`more than ${formatCount(IMPORT_BYTES_MAX)} bytes`);
      const chats = readExport(await file.text());
      this.app.importChats(chats);
      this.dialog.close();
    } catch (error) {
      const problem = error instanceof NotAConversation ? error.message : "it cannot be read";
      this.dialog.close();
      toast(`${file.name.slice(0, 80)} was not imported: ${problem}.`);
    }
  }
}

function section(title, about, ...children) {
  return el("section", null, el("h3", null, title), about ? el("p", { class: "muted" }, about) : null, ...children);
}

/** A field with its label; `apply` throws a message for a value that makes no sense. */
function checkedField(label, hint, input, apply) {
  const problem = el("span", { class: "problem", role: "alert" });
  input.addEventListener("input", () => {
    try {
      apply();
      problem.textContent = "";
      input.removeAttribute("aria-invalid");
    } catch (error) {
      problem.textContent = `${error.message}`;
      input.setAttribute("aria-invalid", "true");
    }
  });
  return el("label", { class: "field" }, el("span", { class: "field-label" }, label, hint ? el("span", { class: "field-hint" }, hint) : null), input, problem);
}

function areaField(label, value, set, { check, ...attributes }) {
  const area = el("textarea", { spellcheck: "false", maxlength: TEXT_CHARS_MAX, ...attributes });
  area.value = value;
  return checkedField(label, null, area, () => {
    set(area.value);
    check?.(area.value);
  });
}

function switchField(label, on, set) {
  const input = el("input", { type: "checkbox", role: "switch" });
  input.checked = on;
  input.addEventListener("change", () => set(input.checked));
  return el("label", { class: "switch" }, el("span", null, label), input);
}
