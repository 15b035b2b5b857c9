// Colours for code: comments, strings, numbers and keywords, by families of languages. It need not
// understand a language; it must never be slow, and what it does not know stays plain.

/** Longer code stays plain: a page of spans costs more than it helps. */
const HIGHLIGHT_CHARS_MAX = 60_000;

const words = (text) => new Set(text.split(" "));

const KEYWORDS = {
  c: words("abstract any as async await auto bool boolean break byte case catch char class const constexpr continue " +
    "crate debugger default defer delete do double dyn else enum export extends extern false final finally float fn " +
    "for foreach from func function get go goto guard if impl implements import in inline instanceof int interface " +
    "internal is let long loop match mod module move mut namespace new nil null number object of operator out override " +
    "package private protected pub public readonly ref return self Self sealed set short signed sizeof static string " +
    "struct super switch template this throw trait true try type typedef typeof undefined union unsafe unsigned use " +
    "using val var virtual void volatile when where while with yield"),
  hash: words("alias and as assert async await begin break case class continue def del do done echo elif else elsif end " +
    "ensure esac except exit export False false fi finally for from function global if import in is lambda let local " +
    "match module next nil None nonlocal not null or pass raise redo require rescue retry return self set source then " +
    "True true try undef unless until when while with yield"),
  dash: words("add all alter and as asc begin between by case create default delete desc distinct drop else end exists " +
    "false foreign from full function group having if in index inner insert into is join key left like limit local not " +
    "null offset on or order outer primary references returning right select set table then true union unique update " +
    "using values view when where with nil repeat return until while do"),
};

const STRING = String.raw`"(?:\\[^]|[^"\\\n])*"?`;
const QUOTED = String.raw`'(?:\\[^]|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\w*`;
const WORD = String.raw`[A-Za-z_$][\w$]*`;

function rule(comment, string) {
  return new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})|(?<word>${WORD})`, "g");
}

const RULES = {
  c: rule(String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`, `${STRING}|${QUOTED}|\`(?:\\\\[^]|[^\`\\\\])*\`?`),
  // A lifetime ('a) is no string.
  rust: rule(String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`, `${STRING}|'(?:\\\\[^\\n']+|[^\\\\'\\n])'`),
  hash: rule(String.raw`(?<![\w$&])#[^\n]*`, `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${STRING}|${QUOTED}`),
  dash: rule(String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|$)`, `${STRING}|${QUOTED}`),
};

const FAMILIES = new Map();
for (const [family, names] of Object.entries({
  c: "c h cpp c++ cc hpp cxx cs csharp java javascript js jsx ts typescript tsx mjs json jsonc json5 go kotlin kt swift " +
    "scala dart php css scss less glsl hlsl metal cuda cu zig proto graphql objc solidity",
  rust: "rust rs",
  hash: "python py python3 bash sh shell zsh console ruby rb perl r yaml yml toml ini conf dockerfile makefile make " +
    "elixir ex nix julia jl powershell ps1 tcl awk cmake",
  dash: "sql postgresql mysql sqlite plsql lua haskell hs ada vhdl elm",
})) {
  for (const name of names.split(" ")) FAMILIES.set(name, family);
}

/** The code as a fragment of text and `span`s. */
function highlighted(code, language) {
  const fragment = document.createDocumentFragment();
  const family = FAMILIES.get(language.toLowerCase());
  if (!family || code.length > HIGHLIGHT_CHARS_MAX) {
    fragment.append(code);
    return fragment;
  }
  const keywords = KEYWORDS[family === "rust" ? "c" : family];
  const ignoreCase = family === "dash";
  let end = 0;
  for (const match of code.matchAll(RULES[family])) {
    const kind = tokenKind(match, keywords, ignoreCase, code);
    if (!kind) continue;
    fragment.append(code.slice(end, match.index), el("span", { class: `t-${kind}` }, match[0]));
    end = match.index + match[0].length;
  }
  fragment.append(code.slice(end));
  return fragment;
}

function tokenKind({ groups, index, 0: text }, keywords, ignoreCase, code) {
  if (groups.comment !== undefined) return "comment";
  if (groups.string !== undefined) return "string";
  if (groups.number !== undefined) return "number";
  if (keywords.has(ignoreCase ? text.toLowerCase() : text)) return "keyword";
  return code[index + text.length] === "(" ? "call" : null;
}
