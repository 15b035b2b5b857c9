// Block markdown: lines to a tree of plain objects. What models write is the measure: headings,
// lists, tables, fences, quotes, rules and paragraphs. HTML is text like any other.
//
// A block depends only on the lines before it and on its own, never on what follows it. So while an
// answer grows, only its last block can still change.

/** Quotes and lists inside each other; deeper ones are paragraphs. */
const BLOCK_DEPTH_MAX = 10;

/** Wider tables are paragraphs. */
const TABLE_COLUMNS_MAX = 50;

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;

/** The lines as blocks; `start` is the index of the first line of a block. */
function parseBlocks(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, next] = readBlock(lines, at, depth);
    block.start = at;
    blocks.push(block);
    at = next;
  }
  return blocks;
}

function readBlock(lines, at, depth) {
  const line = expandTabs(lines[at]);
  const fence = FENCE.exec(line);
  if (fence) return readFence(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    const text = (heading[2] ?? "").replace(/[ \t]+#+[ \t]*$/, "").trim();
    return [{ type: "heading", level: heading[1].length, text }, at + 1];
  }
  if (isRule(line)) return [{ type: "rule" }, at + 1];
  if (depth < BLOCK_DEPTH_MAX) {
    if (QUOTE.test(line)) return readQuote(lines, at, depth);
    if (MARKER.test(line)) return readList(lines, at, depth);
  }
  if (line.startsWith("    ")) return readIndentedCode(lines, at);
  return readTable(lines, at) ?? readParagraph(lines, at, depth);
}

function expandTabs(line) {
  return /^ *\t/.test(line) ? line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    ")) : line;
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

function isRule(line) {
  // Long lines are no rules, and the expression need not look at them.
  return line.length < 200 && RULE.test(line);
}

function readFence(lines, at, [, indent, fence, info]) {
  const closing = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}\\s*$`);
  const code = [];
  let next = at + 1;
  let closed = false;
  while (next < lines.length && !closed) {
    const line = lines[next];
    closed = closing.test(line);
    if (!closed) code.push(indent && line.startsWith(indent) ? line.slice(indent.length) : line);
    next += 1;
  }
  return [{ type: "code", language: info.trim().split(/\s/)[0].slice(0, 40), text: code.join("\n"), closed }, next];
}

function readIndentedCode(lines, at) {
  const code = [];
  let next = at;
  while (next < lines.length) {
    const line = expandTabs(lines[next]);
    if (line.trim() && !line.startsWith("    ")) break;
    code.push(line.slice(4));
    next += 1;
  }
  return [{ type: "code", language: "", text: code.join("\n").trimEnd(), closed: true }, next];
}

function readQuote(lines, at, depth) {
  const inner = [];
  let next = at;
  while (next < lines.length) {
    const line = lines[next];
    if (QUOTE.test(line)) inner.push(line.replace(QUOTE, ""));
    // A paragraph goes on without the sign.
    else if (line.trim() && inner.at(-1)?.trim() && !startsBlock(expandTabs(line))) inner.push(line);
    else break;
    next += 1;
  }
  return [{ type: "quote", blocks: parseBlocks(inner, depth + 1) }, next];
}

function readList(lines, at, depth) {
  const first = MARKER.exec(expandTabs(lines[at]));
  const ordered = /\d/.test(first[2]);
  const kind = first[2].at(-1);
  const list = { type: "list", ordered, first: ordered ? Number.parseInt(first[2], 10) : 1, tight: true, items: [] };
  let next = at;
  while (next < lines.length) {
    const line = expandTabs(lines[next]);
    const marker = MARKER.exec(line);
    if (!marker || marker[2].at(-1) !== kind || isRule(line)) break;
    const [item, after, spaced] = readItem(lines, next, marker, kind, depth);
    list.items.push(item);
    next = after;
    const more = next < lines.length && MARKER.exec(expandTabs(lines[next]))?.[2].at(-1) === kind;
    if (item.spaced || (spaced && more)) list.tight = false;
  }
  return [list, next];
}

/** An item, the line after it, and whether a blank line ended it. */
function readItem(lines, at, [all, indent, sign, space], kind, depth) {
  const width = space.length > 4 ? indent.length + sign.length + 1 : all.length || 1;
  // Models indent by two where the rules ask for three; that is nested, too.
  const nested = Math.min(width, indent.length + 2);
  const inner = [expandTabs(lines[at]).slice(width)];
  let next = at + 1;
  let blank = false;
  let open = fenceAfter(inner[0], null);
  for (; next < lines.length; next += 1) {
    const line = expandTabs(lines[next]);
    if (!line.trim()) {
      inner.push("");
      blank = true;
      continue;
    }
    const depthOfLine = indentOf(line);
    const belongs = depthOfLine >= nested || (open && depthOfLine > indent.length);
    const isNext = MARKER.exec(line)?.[2].at(-1) === kind;
    if (!belongs && (blank || open || isNext || startsBlock(line))) break;
    const text = line.slice(Math.min(depthOfLine, width));
    inner.push(text);
    open = fenceAfter(text, open);
    blank = false;
  }
  const task = /^\[([ xX])\] /.exec(inner[0]);
  if (task) inner[0] = inner[0].slice(4);
  while (inner.length > 1 && !inner.at(-1)) inner.pop();
  const blocks = parseBlocks(inner, depth + 1);
  const spaced = blocks.some((block, i) => i > 0 && block.type === "paragraph" && !inner[block.start - 1]);
  return [{ task: task ? task[1] !== " " : null, blocks, spaced }, next, blank];
}

/** The fence that is open after a line. */
function fenceAfter(line, open) {
  const fence = FENCE.exec(line);
  if (!fence) return open;
  if (!open) return fence[2];
  return fence[2].startsWith(open) && !fence[3].trim() ? null : open;
}

function cells(line) {
  const trimmed = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return trimmed.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** A row of signs and its alignments, or null. */
function alignments(line) {
  if (line === undefined || !line.includes("-") || !/^[\s|:-]+$/.test(line)) return null;
  const all = cells(line);
  if (!all.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return all.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
}

function isTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("|")) return false;
  const align = alignments(lines[at + 1]);
  return align !== null && align.length <= TABLE_COLUMNS_MAX && cells(lines[at]).length === align.length;
}

function readTable(lines, at) {
  if (!isTable(lines, at)) return null;
  const align = alignments(lines[at + 1]);
  const rows = [];
  let next = at + 2;
  while (next < lines.length && lines[next].includes("|") && lines[next].trim()) {
    rows.push(cells(lines[next]).slice(0, align.length));
    next += 1;
  }
  return [{ type: "table", align, header: cells(lines[at]), rows }, next];
}

/** Whether a line ends a paragraph. */
function startsBlock(line) {
  if (FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || isRule(line)) return true;
  const marker = MARKER.exec(line);
  // A sentence may wrap before "1984."; a list inside a text starts at 1.
  return marker !== null && marker[3] !== "" && (!/\d/.test(marker[2]) || /^1[.)]/.test(marker[2]));
}

function readParagraph(lines, at, depth) {
  const text = [lines[at].trimStart()];
  let next = at + 1;
  while (next < lines.length && lines[next].trim()) {
    if (depth < BLOCK_DEPTH_MAX && startsBlock(expandTabs(lines[next]))) break;
    if (isTable(lines, next)) break;
    text.push(lines[next].trimStart());
    next += 1;
  }
  return [{ type: "paragraph", text: text.join("\n").trimEnd() }, next];
}
