// The messages of the shown conversation, one below the other: keeps the elements up to date at most
// once a frame, and the end in view as long as the reader is there.

import { h } from "./dom.js";
import { MessageView } from "./messages.js";
import { shownPath, version } from "./tree.js";

// After a frame that took t to draw, nothing is drawn for this many times t: long answers cost more a
// frame, and the page must stay quick to react.
const REST = 4;
const AT_END_PX = 48;
// Messages that are drawn at first, and that each press of the button above them adds: thousands at
// once would freeze the page.
const SLICE = 200;

export class Thread {
  #scroller;
  #list;
  #toEnd;
  #views = new Map();  // node id to MessageView
  #actions;
  #empty;
  #earlier;
  #drawn = SLICE;  // how many messages from the end at most
  #conversation = null;
  #busy = false;
  #following = true;
  #lastTop = 0;
  #scheduled = false;
  #notBefore = 0;

  // `empty()` makes what is shown where there is no message.
  constructor({ scroller, list, toEnd, actions, empty }) {
    this.#scroller = scroller;
    this.#list = list;
    this.#toEnd = toEnd;
    this.#actions = actions;
    this.#empty = empty;
    this.#earlier = h("button", { type: "button", class: "button earlier", onclick: () => this.#drawEarlier() });
    scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    toEnd.addEventListener("click", () => this.follow());
    new ResizeObserver(() => this.#keepEnd()).observe(list);
    new ResizeObserver(() => this.#keepEnd()).observe(scroller);
  }

  // Shows another conversation, from its end.
  show(conversation) {
    this.#conversation = conversation;
    this.#drawn = SLICE;
    this.#views.clear();
    this.#list.replaceChildren();
    this.draw();
    this.follow();
  }

  setBusy(busy) {
    this.#busy = busy;
  }

  // Draws soon.
  changed() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    const frame = () => {
      if (performance.now() < this.#notBefore) {
        requestAnimationFrame(frame);
        return;
      }
      this.#scheduled = false;
      this.draw();
    };
    requestAnimationFrame(frame);
  }

  draw() {
    if (this.#conversation === null) return;
    const start = performance.now();
    const path = shownPath(this.#conversation);
    const hidden = Math.max(0, path.length - this.#drawn);
    const elements = path.slice(hidden).map((node) => {
      let view = this.#views.get(node.id);
      if (!view || view.node !== node) this.#views.set(node.id, (view = new MessageView(node, this.#actions)));
      view.update(version(this.#conversation, node), this.#busy);
      return view.element;
    });
    if (hidden > 0) {
      this.#earlier.textContent = `Show earlier messages (${hidden})`;
      elements.unshift(this.#earlier);
    }
    if (elements.length === 0) elements.push(this.#list.querySelector(".welcome") ?? this.#empty());
    const same = elements.length === this.#list.children.length &&
      elements.every((element, index) => element === this.#list.children[index]);
    if (!same) this.#list.replaceChildren(...elements);
    this.#notBefore = performance.now() + REST * (performance.now() - start);
    this.#keepEnd();
  }

  // Makes what is shown where there is no message anew.
  renewEmpty() {
    this.#list.querySelector(".welcome")?.remove();
    this.draw();
  }

  // Of a node that is drawn.
  view(node) {
    return this.#views.get(node.id);
  }

  // What the reader sees stays where it is.
  #drawEarlier() {
    this.#following = false;
    const below = this.#scroller.scrollHeight - this.#scroller.scrollTop;
    this.#drawn += SLICE;
    this.draw();
    this.#scroller.scrollTop = this.#scroller.scrollHeight - below;
  }

  // Goes to the end and stays there.
  follow() {
    this.#following = true;
    this.#keepEnd();
  }

  #distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  #keepEnd() {
    if (this.#following) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#lastTop = this.#scroller.scrollTop;
    this.#toEnd.hidden = this.#following || this.#distance() < AT_END_PX;
  }

  #scrolled() {
    const top = this.#scroller.scrollTop;
    const distance = this.#distance();
    if (top < this.#lastTop && distance > 2) this.#following = false;
    else if (distance < AT_END_PX) this.#following = true;
    this.#lastTop = top;
    this.#toEnd.hidden = this.#following || distance < AT_END_PX;
  }
}

// What a page without messages shows.
export function welcome(model, ask) {
  const lexicon = /lexicon/i.test(model);
  const prompts = lexicon
    ? ["What does ephemeral mean?", "Use the word lucid in a sentence.", "What is the opposite of scarce?",
      "Give me a synonym for brave."]
    : ["Explain how a bicycle stays upright.", "Write a haiku about rain on a tin roof.",
      "Show binary search in Python, with a test.", "Give me three ways to say no politely."];
  const note = lexicon ? "This model of 7 million parameters defines English words, and does little else." : "";
  return h("div", { class: "welcome" },
    h("p", { class: "entry" }, h("b", {}, "quire"), h("span", { class: "sound" }, "/ˈkwaɪə/"), h("i", {}, "noun")),
    h("p", { class: "sense" }, "Sheets folded one inside another, the leaves of a book before they are bound. Here they are blank."),
    h("ul", { class: "prompts", "aria-label": "Examples" }, prompts.map((text) =>
      h("li", {}, h("button", { type: "button", onclick: () => ask(text) }, text)))),
    note ? h("p", { class: "note" }, note) : null);
}
