// Markdown to the DOM, safely and again and again while it grows. marked reads it, DOMPurify lets
// through what is listed here and nothing else, highlight.js colours code.

/* global marked, DOMPurify, hljs */
import { copyText, flash, h, icon } from "./dom.js";

const PURIFY = {
  ALLOWED_TAGS: ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre",
    "blockquote", "ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td", "input"],
  ALLOWED_ATTR: ["href", "title", "start", "align", "class", "type", "checked", "disabled"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: ["align", "checked", "disabled", "start", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
// Colouring takes time in proportion; while code grows, it is done again with each piece.
const MAX_COLOURED_GROWING = 4000;
const MAX_COLOURED = 200000;
// Of a paragraph or the like: reading emphasis takes more than time in proportion.
const MAX_INLINE = 5000;

// Debian 12's DOMPurify 2.4.1 (+deb12u1) reads a variable that it does not declare, before the loop in
// which it limits the depth of what it sanitises. With this one that first look finds nothing.
globalThis.shadowNode ??= { __depth: 0 };

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escapeHtml = (text) => text.replace(/[&<>"']/g, (character) => escapes[character]);

const renderer = {
  // Markup in an answer is shown as the text that it is, but for line breaks, which tables need.
  html(text) {
    return /^<br\s*\/?>\s*$/i.test(text) ? "<br>" : escapeHtml(text);
  },
  // An image would tell another server that it was looked at: it becomes a link.
  image(href, title, text) {
    return `<a href="${escapeHtml(href ?? "")}">${escapeHtml(text || href || "")}</a>`;
  },
};
marked.use({ renderer, gfm: true, breaks: true, headerIds: false, mangle: false });

// A text's blocks, what is in them unread: that is the costly part, and most blocks have it behind them.
// A text that is nested too deeply for marked is one block.
function blocks(text) {
  const lexer = new marked.Lexer();
  try {
    lexer.blockTokens(text.replace(/\r\n?/g, "\n"), lexer.tokens);
    return lexer.tokens;
  } catch {
    return Object.assign([{ type: "html", raw: text }], { links: {} });
  }
}

// The markup of one block, or null where it is nested too deeply or would take too long to read.
function markup({ raw }, links) {
  const lexer = new marked.Lexer();
  Object.assign(lexer.tokens.links, links);
  try {
    lexer.blockTokens(raw, lexer.tokens);
    if (lexer.inlineQueue.some(({ src }) => src.length > MAX_INLINE)) return null;
    for (const { src, tokens } of lexer.inlineQueue.splice(0)) lexer.inlineTokens(src, tokens);
    return marked.parser(lexer.tokens);
  } catch {
    return null;
  }
}

function renderBlock(token, links) {
  const html = token.type === "html" ? null : markup(token, links);
  if (html === null) return h("p", { class: "markup" }, token.raw.trim());
  const fragment = DOMPurify.sanitize(html, PURIFY);
  for (const link of fragment.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.type = "checkbox";
    box.disabled = true;
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = h("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const code of fragment.querySelectorAll("pre > code")) codeBlock(code);
  return fragment;
}

// Gives a block of code its head: the language and a button that copies it.
function codeBlock(code) {
  const language = /language-([\w+#.-]+)/.exec(code.className)?.[1] ?? "";
  const pre = code.parentElement;
  const copy = h("button", { type: "button", class: "copy-code" }, icon("copy"), "Copy");
  copy.addEventListener("click", async () => {
    try {
      await copyText(code.textContent);
      flash(copy, "check", "Copied");
    } catch {
      flash(copy, "close", "Not allowed");
    }
  });
  pre.tabIndex = 0;
  const block = h("div", { class: "code-block" },
    h("div", { class: "code-head" }, h("span", {}, language || "text"), copy));
  pre.replaceWith(block);
  block.append(pre);
}

// Colours come from class names alone: highlight.js escapes the code that it is given.
function colour(block, growing) {
  for (const code of block.querySelectorAll("pre > code")) {
    const language = /language-([\w+#.-]+)/.exec(code.className)?.[1]?.toLowerCase();
    const size = code.textContent.length;
    if (!language || !hljs.getLanguage(language) || size > (growing ? MAX_COLOURED_GROWING : MAX_COLOURED)) continue;
    code.className = `language-${language}`;
    if (hljs.highlightElement) hljs.highlightElement(code);
    else hljs.highlightBlock(code);
  }
}

// Shows a text that grows. Only blocks that changed are rendered again.
export class MarkdownView {
  #element;
  #blocks = [];  // {key, element}

  constructor(element) {
    this.#element = element;
  }

  // `complete`: nothing comes after it.
  update(text, complete) {
    const all = blocks(text);
    const tokens = all.filter(({ type }) => type !== "space" && type !== "def");
    const numLinks = Object.keys(all.links).length;
    tokens.forEach((token, index) => {
      const growing = !complete && index === tokens.length - 1;
      const key = `${growing ? "growing" : "done"} ${numLinks} ${token.type} ${token.raw}`;
      const old = this.#blocks[index];
      if (old?.key === key) return;
      const element = h("div", { class: "block" });
      element.append(renderBlock(token, all.links));
      colour(element, growing);
      if (old) old.element.replaceWith(element);
      else this.#element.append(element);
      this.#blocks[index] = { key, element };
    });
    for (const { element } of this.#blocks.splice(tokens.length)) element.remove();
  }
}
