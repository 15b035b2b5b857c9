// Inline markdown: text to nodes, in one pass and in time that grows with the length of the text,
// whatever the text is. Delimiters open frames on a stack; what is not closed turns back to text.

/** Frames that may be open at once; deeper ones stay text. Also bounds the depth of the tree. */
const INLINE_DEPTH_MAX = 24;

/** Longer runs of backticks are no code. */
const TICKS_MAX = 32;

/** Signs at the end of an address that belong to the sentence around it. */
const AFTER_URL = new Set(".,:;!?*_~'])");

/** A link target that is longer than any that people use is not looked for further. */
const LINK_CHARS_MAX = 4_096;

const LINK_SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** The target as a URL that may be followed, or null. */
function safeUrl(text) {
  let url;
  try {
    // No base: a relative target would point into this server.
    url = new URL(text);
  } catch {
    return null;
  }
  return LINK_SCHEMES.has(url.protocol) ? url.href : null;
}

function link(href, children) {
  return el("a", { href, title: href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

/** Appends the text to the parent, with emphasis, code, links and line breaks. */
function appendInline(parent, text) {
  parent.append(...new InlineParser(text).parse());
}

class InlineParser {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.frames = [{ nodes: [] }];
    this.plain = "";
    /** Closing signs that do not come any more: looked for once. */
    this.unclosed = new Set();
  }

  parse() {
    const special = /[\\`*_~[\]!<\n$]|https?:\/\//g;
    while (this.at < this.text.length) {
      special.lastIndex = this.at;
      const match = special.exec(this.text);
      const start = match ? match.index : this.text.length;
      this.plain += this.text.slice(this.at, start);
      this.at = start;
      if (match) this.special(match[0]);
    }
    this.unwindTo(0);
    this.flush();
    return this.frames[0].nodes;
  }

  special(start) {
    switch (start) {
      case "\\": return this.escape();
      case "`": return this.code();
      case "*":
      case "_":
      case "~": return this.emphasis(start);
      case "[": return this.open({ kind: "link", source: "[" }, 1);
      case "]": return this.closeLink();
      case "!": return this.image();
      case "<": return this.angle();
      case "\n": return this.lineBreak();
      case "$": return this.math("$$", "$$") || this.literal(1);
      default: return this.bareUrl();
    }
  }

  flush() {
    if (this.plain) this.frames.at(-1).nodes.push(this.plain);
    this.plain = "";
  }

  literal(n) {
    this.plain += this.text.slice(this.at, this.at + n);
    this.at += n;
  }

  node(node, n) {
    this.flush();
    this.frames.at(-1).nodes.push(node);
    this.at += n;
  }

  open(frame, n) {
    if (this.frames.length > INLINE_DEPTH_MAX) return this.literal(n);
    this.flush();
    this.frames.push({ ...frame, nodes: [] });
    this.at += n;
  }

  /** Turns the frames above `depth` back to text. */
  unwindTo(depth) {
    this.flush();
    while (this.frames.length > depth + 1) {
      const { source, nodes } = this.frames.pop();
      // One by one: a spread of very many nodes would overflow the stack.
      const below = this.frames.at(-1).nodes;
      below.push(source);
      for (const node of nodes) below.push(node);
    }
  }

  escape() {
    const next = this.text[this.at + 1];
    // Formulas are shown as they were written: their signs mean something else here.
    if (next === "(" && this.math("\\(", "\\)")) return;
    if (next === "[" && this.math("\\[", "\\]")) return;
    if (next === "\n") return this.node(el("br"), 2);
    if (next && /[!-/:-@[-`{-~]/.test(next)) {
      this.plain += next;
      this.at += 2;
    } else {
      this.literal(1);
    }
  }

  math(open, close) {
    if (!this.text.startsWith(open, this.at) || this.unclosed.has(close)) return false;
    const from = this.at + open.length;
    if (!this.text.includes(close, from)) {
      this.unclosed.add(close);
      return false;
    }
    const window = this.text.slice(from, from + LINK_CHARS_MAX);
    const length = window.indexOf(close);
    if (length <= 0) return false;
    this.node(el("span", { class: "math" }, window.slice(0, length).trim()), open.length + length + close.length);
    return true;
  }

  code() {
    const ticks = /`+/y;
    ticks.lastIndex = this.at;
    const n = ticks.exec(this.text)[0].length;
    if (n <= TICKS_MAX && !this.unclosed.has(n)) {
      const runs = /`+/g;
      runs.lastIndex = this.at + n;
      for (let run = runs.exec(this.text); run; run = runs.exec(this.text)) {
        if (run[0].length !== n) continue;
        let code = this.text.slice(this.at + n, run.index).replaceAll("\n", " ");
        if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
        return this.node(el("code", null, code), run.index + n - this.at);
      }
      this.unclosed.add(n);
    }
    this.literal(n);
  }

  emphasis(marker) {
    let n = 1;
    while (this.text[this.at + n] === marker) n += 1;
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + n] ?? " ";
    const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
    const [wordBefore, wordAfter] = [/[\p{L}\p{N}]/u.test(before), /[\p{L}\p{N}]/u.test(after)];
    // snake_case is a name, and a run of many signs a line.
    const inWord = marker === "_" && wordBefore && wordAfter;
    if (inWord || n > 3 || (marker === "~" && n !== 2)) return this.literal(n);
    let left = n;
    if (!spaceBefore && !(marker === "_" && wordAfter)) left = this.closeEmphasis(marker, left);
    if (left > 0 && !spaceAfter && !(marker === "_" && wordBefore)) {
      // The outer frame of three signs is the single one.
      for (const size of left === 3 ? [1, 2] : [left]) {
        this.open({ kind: marker, size, source: marker.repeat(size) }, size);
      }
    } else {
      this.literal(left);
    }
  }

  /** Closes frames with up to `left` signs; returns how many are left over. */
  closeEmphasis(marker, left) {
    for (let i = this.frames.length - 1; i > 0 && left > 0; i -= 1) {
      const frame = this.frames[i];
      if (frame.kind === "link") break;
      if (frame.kind !== marker || frame.size > left) continue;
      const isEmpty = i === this.frames.length - 1 && frame.nodes.length === 0 && !this.plain;
      if (isEmpty) break;
      this.unwindTo(i);
      this.frames.pop();
      const tag = marker === "~" ? "del" : frame.size === 2 ? "strong" : "em";
      this.node(el(tag, null, ...wrapMany(frame.nodes)), frame.size);
      left -= frame.size;
    }
    return left;
  }

  image() {
    // The page loads no pictures from anywhere; what is left of one is its description and target.
    if (this.text[this.at + 1] !== "[") return this.literal(1);
    this.open({ kind: "link", source: "![" }, 2);
  }

  closeLink() {
    const top = this.frames.findLastIndex((frame) => frame.kind === "link");
    if (top < 0) return this.literal(1);
    const target = this.linkTarget();
    const href = target && safeUrl(target.url);
    if (!href) {
      this.unwindTo(top - 1);
      return this.literal(1);
    }
    this.unwindTo(top);
    const { nodes } = this.frames.pop();
    // No links in links: brackets around this one are brackets.
    for (const frame of this.frames) if (frame.kind === "link") frame.kind = "text";
    this.node(link(href, wrapMany(nodes.length ? nodes : [href])), target.end - this.at);
  }

  /** What stands in the parentheses after `]`. */
  linkTarget() {
    if (this.text[this.at + 1] !== "(") return null;
    const window = this.text.slice(this.at + 2, this.at + 2 + LINK_CHARS_MAX);
    const match = /^\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(window);
    if (!match) return null;
    return { url: (match[1] ?? match[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1"), end: this.at + 2 + match[0].length };
  }

  angle() {
    const window = this.text.slice(this.at, this.at + LINK_CHARS_MAX);
    const lineBreak = /^<br ?\/?>/i.exec(window);
    if (lineBreak) return this.node(el("br"), lineBreak[0].length);
    const auto = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i.exec(window);
    const href = auto && !this.inLink() && safeUrl(auto[1]);
    if (href) return this.node(link(href, [auto[1]]), auto[0].length);
    this.literal(1);
  }

  bareUrl() {
    const window = this.text.slice(this.at, this.at + LINK_CHARS_MAX);
    let url = /^https?:\/\/[^\s<>`"]+/.exec(window)?.[0] ?? "";
    const parenthesised = url.includes("(");
    while (AFTER_URL.has(url.at(-1)) && !(parenthesised && url.endsWith(")"))) url = url.slice(0, -1);
    const href = !this.inLink() && url.length > 8 && safeUrl(url);
    if (href) return this.node(link(href, [url]), url.length);
    this.literal(4);
  }

  inLink() {
    return this.frames.some((frame) => frame.kind === "link");
  }

  lineBreak() {
    // Models break lines where they mean it, so a single one is kept as well.
    this.plain = this.plain.trimEnd();
    this.node(el("br"), 1);
  }
}

/** Few arguments for `append`, whatever the number of nodes. */
function wrapMany(nodes) {
  if (nodes.length < 1_000) return nodes;
  const fragment = document.createDocumentFragment();
  for (const node of nodes) fragment.append(node);
  return [fragment];
}
