// Conversations and options in the browser's storage. All conversations are in memory as well: the
// bounds below keep them to a few megabytes, and so the list and the search need no index.

/** The list stays usable, and the start fast. */
const CONVERSATIONS_MAX = 1_000;

/** Browsers give a site five million characters; the rest is for the options. */
const STORED_CHARS_MAX = 4_800_000;

const CHAT_KEY = "lily.chat.";

class Store {
  constructor(storage) {
    this.storage = storage;
    this.chats = new Map();
    /** Characters of each conversation as it is stored. */
    this.sizes = new Map();
    this.unreadable = 0;
    for (const key of this.keys()) this.load(key);
  }

  get isKept() {
    return this.storage !== null;
  }

  keys() {
    if (!this.storage) return [];
    return Array.from({ length: this.storage.length }, (_, i) => this.storage.key(i)).filter((k) => k?.startsWith(CHAT_KEY));
  }

  /** Takes over what is stored under a key; returns false if that is no conversation. */
  load(key) {
    const text = this.storage.getItem(key);
    try {
      const chat = readConversation(JSON.parse(text), true);
      if (CHAT_KEY + chat.id !== key) throw new NotAConversation("stored under another name");
      this.chats.set(chat.id, chat);
      this.sizes.set(chat.id, text.length);
      return true;
    } catch {
      this.unreadable += 1;
      return false;
    }
  }

  /** All conversations, the latest first. */
  list() {
    return [...this.chats.values()].sort((a, b) => b.updated - a.updated);
  }

  /** Keeps a conversation; returns null, or why it is only in memory. */
  save(chat) {
    this.chats.set(chat.id, chat);
    if (!this.storage) return "blocked";
    const text = JSON.stringify(chat);
    const others = [...this.sizes].reduce((sum, [id, size]) => sum + (id === chat.id ? 0 : size), 0);
    if (others + text.length > STORED_CHARS_MAX || this.chats.size > CONVERSATIONS_MAX) return "full";
    try {
      this.storage.setItem(CHAT_KEY + chat.id, text);
    } catch {
      return "full";
    }
    this.sizes.set(chat.id, text.length);
    return null;
  }

  remove(id) {
    this.chats.delete(id);
    this.sizes.delete(id);
    this.storage?.removeItem(CHAT_KEY + id);
  }

  /** Another tab changed a conversation; returns its id. */
  changedElsewhere(key) {
    const id = key.slice(CHAT_KEY.length);
    this.chats.delete(id);
    this.sizes.delete(id);
    if (this.storage.getItem(key) !== null) this.load(key);
    return id;
  }

  get usedChars() {
    return [...this.sizes.values()].reduce((sum, size) => sum + size, 0);
  }

  getOption(name) {
    return this.storage?.getItem(`lily.${name}`) ?? null;
  }

  setOption(name, value) {
    try {
      if (value === null || value === "") this.storage?.removeItem(`lily.${name}`);
      else this.storage?.setItem(`lily.${name}`, value);
    } catch {
      // Full: the option holds until the page is left.
    }
  }
}

/** The browser's storage, or null where it is switched off. */
function openStorage() {
  try {
    const probe = "lily.probe";
    localStorage.setItem(probe, "1");
    localStorage.removeItem(probe);
    return localStorage;
  } catch (error) {
    // A full storage can still be read and emptied.
    return error.name === "QuotaExceededError" ? localStorage : null;
  }
}

/** Where a search looks. */
function matches(chat, needle) {
  if (!needle) return true;
  const has = (text) => text.toLowerCase().includes(needle);
  return has(chat.title) || chat.messages.some((turn) => has(turn.content));
}
