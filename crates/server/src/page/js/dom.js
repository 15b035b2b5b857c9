// Making elements. Text goes in as text: nothing in this page ever turns a string into markup.

const SVG = document.querySelector("svg").namespaceURI;

function byId(id) {
  return document.getElementById(id);
}

/**
 * An element with attributes, listeners (`onclick: function`) and children (nodes or strings).
 * An attribute that is null, undefined or false is left out.
 */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** One of the drawings of page.html. */
function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

function setIcon(button, name) {
  button.querySelector("svg.icon").replaceWith(icon(name));
}

/** A button that shows a drawing alone; the label is for those who do not see it, and on hover. */
function iconButton(name, label, onclick, kind = "quiet") {
  return el("button", { type: "button", class: kind, "aria-label": label, title: label, onclick }, icon(name));
}

function textButton(label, onclick, kind = "plain") {
  return el("button", { type: "button", class: kind, onclick }, label);
}

const COPIED_SHOWN_MS = 1600;

function copyButton(text, label = "Copy") {
  const button = iconButton("copy", label, async () => {
    const done = await copyText(text());
    setIcon(button, done ? "check" : "warning");
    announce(done ? "Copied" : "The browser refused to copy");
    setTimeout(() => setIcon(button, "copy"), COPIED_SHOWN_MS);
  });
  return button;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page that came over plain http from another machine has no clipboard; this way still works.
    const area = el("textarea", { class: "unseen", readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Says something to screen readers. */
function announce(text) {
  byId("live").textContent = text;
}

const TOAST_SHOWN_MS = 7000;

/** A short message at the edge, with an optional way back. */
function toast(text, action, run) {
  const node = el("div", { class: "toast" }, el("span", null, text));
  const timer = setTimeout(() => node.remove(), TOAST_SHOWN_MS);
  const close = () => {
    clearTimeout(timer);
    node.remove();
  };
  if (action) {
    node.append(textButton(action, () => {
      close();
      run();
    }, "link"));
  }
  node.append(iconButton("close", "Dismiss", close));
  byId("toasts").replaceChildren(node);
}

/** A message that stays until its reason is gone; one for each `id`. */
function notice(id, text, ...actions) {
  clearNotice(id);
  const node = el("div", { class: "notice", "data-notice": id, role: "alert" }, icon("warning"));
  node.append(el("span", null, text), ...actions);
  byId("notices").append(node);
}

function clearNotice(id) {
  byId("notices").querySelector(`[data-notice="${id}"]`)?.remove();
}

const formatCount = (n) => Math.round(n).toLocaleString("en-US");
const formatRate = (n) => (n >= 100 ? formatCount(n) : n.toFixed(1));

function formatSeconds(ms) {
  if (ms < 950) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

/** A name that nobody else draws. `crypto.randomUUID` is missing where the page came over http. */
function freshId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
