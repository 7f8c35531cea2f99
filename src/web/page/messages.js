// One message as it is shown.

import { copyText, flash, h, iconButton } from "./dom.js";
import { jsonTree } from "./json_tree.js";
import { MarkdownView } from "./markdown.js";
import { isActive } from "./run.js";
import { toolCard } from "./tool_card.js";

const seconds = (ms) => `${(ms / 1000).toFixed(ms < 995 ? 2 : 1)} s`;
const FINISHES = {
  length: "cut at the longest answer",
  content_filter: "cut by a filter",
  tool_calls: "asks for a tool",
};

// What is noted beside an answer: [value, what it is].
export function notes({ stats = {}, finish, state }) {
  const result = [];
  if (stats.tokensPerSecond > 0) {
    result.push([stats.tokensPerSecond.toFixed(stats.tokensPerSecond < 99.95 ? 1 : 0), "tokens/s"]);
  }
  if (Number.isFinite(stats.firstTokenMs)) result.push([seconds(stats.firstTokenMs), "to first token"]);
  if (Number.isFinite(stats.outputTokens)) result.push([String(stats.outputTokens), "output tokens"]);
  if (Number.isFinite(stats.cachedTokens) && Number.isFinite(stats.promptTokens)) {
    result.push([`${stats.cachedTokens} of ${stats.promptTokens}`, "prompt tokens cached"]);
  }
  if (state === "stopped") result.push(["stopped", "by you"]);
  else if (finish && finish !== "stop") result.push([finish, FINISHES[finish] ?? "finish reason"]);
  return result;
}

export class MessageView {
  #node;
  #actions;
  #content = h("div", { class: "content" });
  #tree = null;  // in the content's place where that is JSON
  #reasoning = null;
  #tools = h("div", { class: "tools" });
  #notice = h("div", { class: "notice-slot" });
  #versions = h("div", { class: "versions" });
  #notes = h("ul", { class: "notes", "aria-label": "Figures" });
  #who = h("div", { class: "who" });
  #markdown;
  #bar;

  // `actions`: retry(node), retryNow(node), edit(node, text), showVersion(node, step),
  // sendToolResults(node, texts).
  constructor(node, actions) {
    this.#node = node;
    this.#actions = actions;
    this.#markdown = new MarkdownView(this.#content);
    this.#bar = h("div", { class: "bar" }, this.#versions, this.#buttons());
    this.element = h("article", { class: `message ${node.role}`, "data-id": node.id }, this.#who,
      h("div", { class: "body" }, this.#content, this.#tools, this.#notice, this.#bar), this.#notes);
  }

  get node() {
    return this.#node;
  }

  #buttons() {
    const node = this.#node;
    const copy = iconButton("copy", "Copy", async () => {
      try {
        await copyText(node.content);
        flash(copy, "check", "Copied");
      } catch {
        flash(copy, "close", "The browser did not allow copying");
      }
    });
    const own = node.role === "assistant"
      ? iconButton("retry", "Answer again", () => this.#actions.retry(node), { "data-act": "retry" })
      : iconButton("edit", "Edit", () => this.startEditing(), { "data-act": "edit" });
    return [copy, node.role === "tool" ? null : own].filter(Boolean);
  }

  // Shows what the node is now. `version`: {index, count}; `busy`: an answer is being made.
  update(version, busy) {
    const node = this.#node;
    const active = isActive(node);
    this.element.classList.toggle("active", active);
    this.element.classList.toggle("waiting", node.state === "waiting");
    this.element.setAttribute("aria-busy", String(active));
    const names = { user: "You", tool: "Tool", assistant: node.model || "Answer" };
    this.#who.textContent = names[node.role].split("/").at(-1);
    this.#who.title = names[node.role];
    if (node.role === "assistant") {
      this.#updateReasoning(active);
      this.#updateContent(active);
      this.#updateTools();
      this.#updateNotes();
    } else {
      this.#content.textContent = node.content;
    }
    this.#updateNotice();
    this.#updateVersions(version, busy);
    this.#bar.hidden = active || this.element.querySelector(".editor") !== null;
    for (const button of this.#bar.querySelectorAll("[data-act]")) button.disabled = busy;
  }

  #updateContent(active) {
    const node = this.#node;
    if (this.#tree !== null) return;
    this.#markdown.update(node.content, !active);
    this.#tree = active ? null : jsonTree(node.content);
    if (this.#tree === null) return;
    this.#content.hidden = true;
    this.#content.after(this.#tree);
  }

  #updateReasoning(active) {
    const node = this.#node;
    if (node.reasoning === "") return;
    if (this.#reasoning === null) {
      const text = h("div", { class: "reasoning-text" });
      const summary = h("summary");
      const element = h("details", { class: "reasoning", ontoggle: () => this.#updateReasoning(isActive(node)) }, summary, text);
      this.#reasoning = { element, summary, text: new MarkdownView(text) };
      this.#content.before(element);
    }
    const { element, summary, text } = this.#reasoning;
    const thinking = active && node.content === "" && node.toolCalls.length === 0;
    element.classList.toggle("thinking", thinking);
    const time = node.stats.thinkingMs;
    const after = Number.isFinite(time) ? `Thought for ${Math.max(1, Math.round(time / 1000))} s` : "Thoughts";
    const label = thinking ? "Thinking…" : after;
    if (summary.textContent !== label) summary.textContent = label;
    if (element.open) text.update(node.reasoning, !thinking);
  }

  #updateTools() {
    const node = this.#node;
    const key = JSON.stringify([node.toolCalls, node.state, node.children.length]);
    if (this.#tools.dataset.key === key) return;
    this.#tools.dataset.key = key;
    const fields = node.toolCalls.map(({ name }) =>
      h("textarea", { rows: 2, "aria-label": `Result of ${name}`, placeholder: "What the tool answers" }));
    const asks = node.toolCalls.length > 0 && !isActive(node) && node.children.length === 0;
    this.#tools.replaceChildren(
      ...node.toolCalls.map((call, index) => toolCard(call, !isActive(node), asks ? fields[index] : null)),
      ...(asks ? [h("button", { type: "button", class: "button", onclick: () =>
        this.#actions.sendToolResults(node, fields.map(({ value }) => value)) }, "Send results")] : []));
  }

  #updateNotes() {
    const rows = isActive(this.#node) ? [] : notes(this.#node);
    const key = JSON.stringify(rows);
    if (this.#notes.dataset.key === key) return;
    this.#notes.dataset.key = key;
    this.#notes.replaceChildren(...rows.map(([value, what]) => h("li", {}, h("b", {}, value), ` ${what}`)));
  }

  #updateNotice() {
    const node = this.#node;
    const wait = node.state === "full" ? Math.max(0, Math.ceil((node.retryAt - Date.now()) / 1000)) : null;
    const key = `${node.state} ${node.error ?? ""}`;
    if (this.#notice.dataset.key !== key) this.#renewNotice();
    this.#notice.dataset.key = key;
    const text = `The server is full. Asking again in ${wait} s.`;
    const full = this.#notice.querySelector(".full");
    if (full && full.textContent !== text) full.textContent = text;
  }

  #renewNotice() {
    const node = this.#node;
    const again = (label, action) => h("button", { type: "button", class: "button", onclick: action }, label);
    if (node.state === "full") {
      this.#notice.replaceChildren(h("div", { class: "notice" },
        h("p", { class: "full" }),
        again("Ask now", () => this.#actions.retryNow(node))));
    } else if (node.state === "failed") {
      this.#notice.replaceChildren(h("div", { class: "notice failed", role: "alert" }, h("p", {}, node.error),
        again("Try again", () => this.#actions.retry(node))));
    } else {
      this.#notice.replaceChildren();
    }
  }

  #updateVersions({ index, count }, busy) {
    const key = `${index}/${count}/${busy}`;
    if (this.#versions.dataset.key === key) return;
    this.#versions.dataset.key = key;
    this.#versions.hidden = count < 2;
    const step = (name, label, by, disabled) =>
      iconButton(name, label, () => this.#actions.showVersion(this.#node, by), { disabled });
    this.#versions.replaceChildren(
      step("left", "Previous version", -1, busy || index === 0),
      h("span", { "aria-label": `Version ${index + 1} of ${count}` }, `${index + 1}/${count}`),
      step("right", "Next version", 1, busy || index === count - 1));
  }

  // Turns a question into a field; sending it makes a new version.
  startEditing() {
    if (this.element.querySelector(".editor")) return;
    const field = h("textarea", { "aria-label": "Edit your message", rows: 1 });
    field.value = this.#node.content;
    const grow = () => {
      field.style.height = "auto";
      field.style.height = `${field.scrollHeight + 2}px`;
    };
    const close = () => {
      editor.remove();
      this.#content.hidden = this.#bar.hidden = false;
    };
    const cancel = () => {
      close();
      this.#bar.querySelector("[data-act=edit]").focus();
    };
    const send = () => {
      const text = field.value;
      if (text.trim() !== "" && this.#actions.edit(this.#node, text)) close();
    };
    const editor = h("form", { class: "editor", onsubmit: (event) => { event.preventDefault(); send(); } }, field,
      h("div", { class: "editor-buttons" },
        h("button", { type: "submit", class: "button primary" }, "Send"),
        h("button", { type: "button", class: "button", onclick: cancel }, "Cancel")));
    field.addEventListener("input", grow);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
    });
    this.#content.hidden = this.#bar.hidden = true;
    this.#content.after(editor);
    grow();
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}
