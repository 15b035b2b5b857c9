// The message field and what stands below it: thinking, options, speed, context, send and stop.

class Composer {
  constructor(app) {
    this.app = app;
    this.input = byId("input");
    this.button = byId("send");
    this.isRunning = false;
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener("input", () => {
      fitHeight(this.input);
      this.keepDraft();
    });
    this.input.addEventListener("keydown", (event) => {
      if (!isSendKey(event)) return;
      event.preventDefault();
      if (this.isRunning) announce("An answer is still being written; Escape stops it");
      else this.submit();
    });
    byId("thinking").addEventListener("click", () => app.setThinking(!app.options.values.thinking));
    this.input.value = this.draft() ?? "";
    fitHeight(this.input);
  }

  draft() {
    try {
      return sessionStorage.getItem("lily.draft");
    } catch {
      return null;
    }
  }

  /** A reload must not cost what was typed. */
  keepDraft() {
    try {
      sessionStorage.setItem("lily.draft", this.input.value);
    } catch {
      // Switched off or full: then it is not kept.
    }
  }

  submit() {
    if (this.isRunning) {
      this.app.stop();
      return;
    }
    const text = this.input.value;
    if (!text.trim()) return;
    this.setText("");
    this.app.ask(text);
  }

  setText(text) {
    this.input.value = text;
    fitHeight(this.input);
    this.keepDraft();
  }

  setRunning(running) {
    this.isRunning = running;
    this.button.classList.toggle("stop", running);
    this.button.setAttribute("aria-label", running ? "Stop" : "Send");
    this.button.title = running ? "Stop (Esc)" : "Send (Enter)";
    setIcon(this.button, running ? "stop" : "send");
    if (!running) byId("speed").textContent = "";
  }

  showSpeed(text) {
    byId("speed").textContent = text;
  }

  /** How much of the context the conversation takes; `used` is null before the first answer. */
  showContext(used, context) {
    const gauge = byId("gauge");
    gauge.hidden = used === null || !context;
    if (gauge.hidden) return;
    const share = Math.min(used / context, 1);
    byId("gauge-arc").setAttribute("stroke-dasharray", `${(share * 100).toFixed(1)} 100`);
    byId("gauge-text").textContent = `${shortCount(used)} / ${shortCount(context)}`;
    const text = `${formatCount(used)} of ${formatCount(context)} tokens of context used`;
    gauge.title = text;
    gauge.setAttribute("aria-valuemax", context);
    gauge.setAttribute("aria-valuenow", Math.min(used, context));
    gauge.setAttribute("aria-valuetext", text);
    gauge.classList.toggle("high", share > 0.85);
  }
}

function shortCount(n) {
  if (n < 1_000) return String(Math.round(n));
  const k = n / 1_000;
  return `${k < 10 ? k.toFixed(1) : Math.round(k)}k`;
}
