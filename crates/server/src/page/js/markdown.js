// A markdown text on the page, kept up while the text grows.

const CODE_LABEL_PLAIN = "text";

function blockNode(block) {
  switch (block.type) {
    case "heading": {
      // The title of the page is the first level.
      const node = el(`h${Math.min(block.level + 1, 6)}`, { class: `md-h${block.level}` });
      appendInline(node, block.text);
      return node;
    }
    case "rule": return el("hr");
    case "code": return codeNode(block);
    case "quote": return el("blockquote", null, ...block.blocks.map(blockNode));
    case "list": return listNode(block);
    case "table": return tableNode(block);
    default: {
      const node = el("p");
      appendInline(node, block.text);
      return node;
    }
  }
}

function codeNode({ language, text, closed }) {
  const code = el("code");
  // Colours come when the block is complete: until then its text only grows at the end.
  code.append(closed ? highlighted(text, language) : document.createTextNode(text));
  const label = language || CODE_LABEL_PLAIN;
  return el("div", { class: "code" },
    el("div", { class: "code-head" }, el("span", null, label), copyButton(() => code.textContent, "Copy code")),
    el("pre", { tabindex: "0", role: "region", "aria-label": `Code, ${label}` }, code));
}

function listNode({ ordered, first, tight, items }) {
  const list = el(ordered ? "ol" : "ul", { start: ordered && first !== 1 ? first : null });
  for (const { task, blocks } of items) {
    const item = el("li", { class: task === null ? null : "task" });
    if (task !== null) item.append(el("input", { type: "checkbox", disabled: true, checked: task }));
    for (const block of blocks) {
      if (tight && block.type === "paragraph") appendInline(item, block.text);
      else item.append(blockNode(block));
    }
    list.append(item);
  }
  return list;
}

function tableNode({ align, header, rows }) {
  const row = (texts, tag) => el("tr", null, ...align.map((side, i) => {
    const cell = el(tag, { class: side === "left" ? null : `to-${side}` });
    appendInline(cell, texts[i] ?? "");
    return cell;
  }));
  const body = el("tbody");
  for (const texts of rows) body.append(row(texts, "td"));
  const table = el("table", null, el("thead", null, row(header, "th")), body);
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, table);
}

/** Fills an element with a text that is complete. */
function renderMarkdown(container, text) {
  new GrowingMarkdown(container).update(text, true);
}

/**
 * Markdown that grows at its end. Blocks that can no longer change stay on the page as they are;
 * only the last one is made anew, and code that is still open just gets more text.
 */
class GrowingMarkdown {
  constructor(container) {
    this.container = container;
    container.replaceChildren();
    /** Text up to here is on the page for good. */
    this.settled = 0;
    this.tail = [];
    this.openCode = null;
  }

  /** `text` starts with the text of the call before. */
  update(text, complete = false) {
    if (complete || text.includes("\n", this.settled)) this.settle(text);
    const lines = text.slice(this.settled).split("\n");
    const blocks = parseBlocks(lines);
    const growing = !complete && blocks.length === 1 && blocks[0].type === "code" && !blocks[0].closed;
    if (growing && this.openCode?.language === blocks[0].language) {
      const { data } = this.openCode.text;
      if (blocks[0].text.startsWith(data)) {
        this.openCode.text.appendData(blocks[0].text.slice(data.length));
        return;
      }
    }
    this.replaceTail(blocks.map(blockNode));
    this.openCode = null;
    if (growing) {
      const text = this.tail[0].querySelector("code").firstChild;
      this.openCode = { language: blocks[0].language, text };
    }
  }

  /** Puts all blocks but the last down for good. The last line may be a part of one, so it says nothing yet. */
  settle(text) {
    const end = text.lastIndexOf("\n") + 1;
    if (end <= this.settled) return;
    const lines = text.slice(this.settled, end).split("\n");
    const blocks = parseBlocks(lines);
    if (blocks.length < 2) return;
    const last = blocks.pop();
    this.replaceTail(blocks.map(blockNode));
    this.tail = [];
    this.openCode = null;
    let offset = this.settled;
    for (let i = 0; i < last.start; i += 1) offset += lines[i].length + 1;
    this.settled = offset;
  }

  replaceTail(nodes) {
    for (const node of this.tail) node.remove();
    for (const node of nodes) this.container.append(node);
    this.tail = nodes;
  }
}
