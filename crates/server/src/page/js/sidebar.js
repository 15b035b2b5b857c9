// The list of conversations: groups by age, search, rename and delete; a drawer on narrow screens.

const DAY_MS = 86_400_000;

/** More would only be scrolled past; the search finds the rest. */
const LISTED_MAX = 300;

class Sidebar {
  constructor(app) {
    this.app = app;
    this.list = byId("chat-list");
    this.search = byId("search");
    this.node = byId("sidebar");
    this.scrim = byId("scrim");
    this.opener = byId("open-sidebar");
    this.narrow = matchMedia("(max-width: 760px)");
    this.search.addEventListener("input", () => this.show());
    this.search.addEventListener("keydown", (event) => this.onSearchKey(event));
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    byId("new-chat").addEventListener("click", () => this.pick(null));
    byId("new-chat-narrow").addEventListener("click", () => this.pick(null));
    byId("close-sidebar").addEventListener("click", () => this.close());
    this.opener.addEventListener("click", () => this.open());
    this.scrim.addEventListener("click", () => this.close());
    this.narrow.addEventListener("change", () => this.setOpen(false));
    this.setOpen(false);
  }

  get isOpen() {
    return this.narrow.matches && this.node.classList.contains("open");
  }

  open() {
    this.setOpen(true);
    byId("new-chat").focus();
  }

  close() {
    const wasOpen = this.isOpen;
    this.setOpen(false);
    if (wasOpen) this.opener.focus();
  }

  setOpen(open) {
    this.node.classList.toggle("open", open);
    this.scrim.hidden = !open;
    this.opener.setAttribute("aria-expanded", String(open));
    // What is off the screen must not take the focus, nor what is below the drawer.
    this.node.inert = this.narrow.matches && !open;
    byId("main").inert = open;
  }

  pick(id) {
    this.setOpen(false);
    this.app.openChat(id);
    byId("input").focus();
  }

  show() {
    const needle = this.search.value.trim().toLowerCase();
    const chats = this.app.store.list().filter((chat) => matches(chat, needle));
    const groups = new Map();
    for (const chat of chats.slice(0, LISTED_MAX)) {
      const name = ageGroup(chat.updated);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(chat);
    }
    this.list.replaceChildren();
    for (const [name, members] of groups) {
      this.list.append(el("section", { "aria-label": name }, el("h2", { class: "group" }, name),
        el("ul", null, ...members.map((chat) => this.entry(chat)))));
    }
    if (chats.length === 0) this.list.append(el("p", { class: "nothing" }, needle ? "Nothing found." : "No conversations yet."));
    if (chats.length > LISTED_MAX) this.list.append(el("p", { class: "nothing" }, `${chats.length - LISTED_MAX} older ones: search for them.`));
  }

  entry(chat) {
    const isCurrent = this.app.chat.id === chat.id;
    const open = el("button", { type: "button", class: "open", "aria-current": isCurrent ? "true" : null, title: chat.title, onclick: () => this.pick(chat.id) },
      el("span", { class: "title" }, chat.title),
      this.app.runs.has(chat.id) ? el("span", { class: "running", role: "img", "aria-label": "answering" }) : null);
    const item = el("li", { class: isCurrent ? "current" : null }, open, el("span", { class: "entry-actions" },
      iconButton("edit", `Rename ${chat.title}`, () => this.rename(chat, item)),
      iconButton("delete", `Delete ${chat.title}`, () => this.app.deleteChat(chat.id))));
    return item;
  }

  rename(chat, item) {
    const field = el("input", { class: "rename", "aria-label": "Title", maxlength: TITLE_CHARS_MAX });
    field.value = chat.title;
    let done = false;
    const finish = (keep) => {
      if (done) return;
      done = true;
      if (keep && field.value.trim()) this.app.renameChat(chat, field.value.trim());
      this.show();
      this.list.querySelector("[aria-current]")?.focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.stopPropagation();
      event.preventDefault();
      finish(event.key === "Enter");
    });
    field.addEventListener("blur", () => finish(true));
    item.replaceChildren(field);
    field.select();
  }

  onSearchKey(event) {
    if (event.key === "Escape" && this.search.value) {
      event.stopPropagation();
      this.search.value = "";
      this.show();
    } else if (event.key === "ArrowDown") {
      event.preventDefault();
      this.list.querySelector(".open")?.focus();
    }
  }

  /** Up and down walk through the titles. */
  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.classList.contains("open")) return;
    event.preventDefault();
    const all = [...this.list.querySelectorAll(".open")];
    const next = all.indexOf(event.target) + step;
    (all[next] ?? (next < 0 ? this.search : event.target)).focus();
  }
}

function ageGroup(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY_MS) return "Yesterday";
  if (time >= midnight - 7 * DAY_MS) return "Previous 7 days";
  return "Older";
}
