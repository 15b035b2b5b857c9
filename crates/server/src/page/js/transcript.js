// The turns of the open conversation, and where the view stands in them.

/** Nearer to the end than this is at the end. */
const END_PX = 48;

/** After a rendering that took long, wait this many times as long: the page must stay usable. */
const REST_FACTOR = 3;

const SUGGESTIONS = [
  ["What are you?", "A word about this model"],
  ["What is 17 + 25?", "A simple sum"],
  ["Write a haiku about a small model.", "Something short"],
  ["Explain how a hash map works, with an example in Rust.", "Something longer"],
];

class Transcript {
  constructor(actions) {
    this.actions = actions;
    this.scroller = byId("scroller");
    this.list = byId("transcript");
    this.toEnd = byId("to-end");
    this.views = [];
    this.pinned = true;
    this.lastTop = 0;
    this.queued = false;
    this.scroller.addEventListener("scroll", () => this.onScroll(), { passive: true });
    this.toEnd.addEventListener("click", () => {
      this.pin();
      byId("input").focus();
    });
    new ResizeObserver(() => this.follow()).observe(this.list);
    new ResizeObserver(() => this.follow()).observe(this.scroller);
  }

  /** Shows a conversation from its end. */
  open(chat, liveTurn) {
    this.views = [];
    this.list.replaceChildren();
    this.list.classList.toggle("empty", chat.messages.length === 0);
    if (chat.messages.length === 0) this.list.append(this.welcome());
    for (const turn of chat.messages) this.add(turn);
    this.refresh(chat, liveTurn);
    this.pin();
    if (chat.messages.length === 0) this.scroller.scrollTop = 0;
  }

  welcome() {
    const cards = SUGGESTIONS.map(([text, about]) => el("button", { type: "button", class: "suggestion", onclick: () => this.actions.ask(text) },
      el("span", null, text), el("span", { class: "muted" }, about)));
    const mark = icon("lily");
    mark.classList.add("filled");
    return el("div", { class: "welcome" }, mark, el("h2", null, "What shall we talk about?"),
      el("p", { class: "muted" }, "Everything runs on this server. Conversations stay in this browser."), el("div", { class: "suggestions" }, ...cards));
  }

  add(turn) {
    const view = turnView(turn, this.actions);
    this.views.push(view);
    this.list.append(view.node);
  }

  /** Brings the page to the turns that the conversation has now; those that stay are not made again. */
  refresh(chat, liveTurn) {
    const kept = new Map(this.views.map((view) => [view.turn, view]));
    if (chat.messages.length === 0) {
      this.views = [];
      this.list.replaceChildren(this.welcome());
      this.list.classList.add("empty");
      return;
    }
    this.list.classList.remove("empty");
    this.list.querySelector(".welcome")?.remove();
    this.views = chat.messages.map((turn) => kept.get(turn) ?? turnView(turn, this.actions));
    const nodes = new Set(this.views.map((view) => view.node));
    for (const node of [...this.list.children]) if (!nodes.has(node)) node.remove();
    this.views.forEach((view, i) => {
      if (this.list.children[i] !== view.node) this.list.insertBefore(view.node, this.list.children[i] ?? null);
      if (view instanceof AnswerView) view.update(view.turn === liveTurn, i === this.views.length - 1);
    });
    this.list.append(...this.pending(chat, liveTurn));
    this.follow();
  }

  /** After the last turn of the user, if nobody is answering it. */
  pending(chat, liveTurn) {
    const last = chat.messages.at(-1);
    if (liveTurn || last.role === "assistant") return [];
    return [el("div", { class: "pending" }, textButton("Answer this", () => this.actions.answer()))];
  }

  /** Shows what a running answer has got by now, at the next chance that leaves the page usable. */
  queue(turn) {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      const start = performance.now();
      const view = this.views.at(-1);
      if (view?.turn !== turn || turn.finish !== null) return;
      view.update(true, true);
      this.follow();
      const spent = performance.now() - start;
      if (spent > 8) {
        this.queued = true;
        setTimeout(() => {
          this.queued = false;
          this.queue(turn);
        }, spent * REST_FACTOR);
      }
    });
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const left = scrollHeight - clientHeight - scrollTop;
    // Growth moves the end away without a scroll; only the user moves the view upwards, except that
    // the browser does when the end itself moves up.
    if (left <= 2) this.pinned = true;
    else if (scrollTop < this.lastTop - 1) this.pinned = false;
    else if (left < END_PX) this.pinned = true;
    this.lastTop = scrollTop;
    this.toEnd.hidden = this.pinned || left < END_PX;
  }

  pin() {
    this.pinned = true;
    this.follow();
  }

  follow() {
    if (this.pinned && !this.list.classList.contains("empty")) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
      this.lastTop = this.scroller.scrollTop;
    }
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.toEnd.hidden = this.pinned || scrollHeight - clientHeight - scrollTop < END_PX;
  }
}
