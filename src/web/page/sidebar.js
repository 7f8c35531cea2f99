// The list of conversations.

import { h, iconButton } from "./dom.js";

export class Sidebar {
  #list;
  #actions;
  #renaming = null;

  // `actions`: open(id), rename(id, title), remove(id).
  constructor(list, actions) {
    this.#list = list;
    this.#actions = actions;
  }

  // `entries`: [{id, title, busy}], `current`: the shown one's id.
  show(entries, current) {
    if (this.#renaming !== null && this.#list.contains(document.activeElement)) return;
    this.#renaming = null;
    const focused = document.activeElement?.closest?.("[data-conversation]")?.dataset.conversation;
    this.#list.replaceChildren(...entries.map((entry) => this.#row(entry, current)));
    if (focused && document.activeElement === document.body) {
      this.#list.querySelector(`[data-conversation="${focused}"] .open`)?.focus();
    }
  }

  #row({ id, title, busy }, current) {
    const name = title || "New conversation";
    const open = h("button", { type: "button", class: "open", onclick: () => this.#actions.open(id),
      "aria-current": id === current ? "true" : null }, h("span", { class: "title" }, name),
    busy ? h("span", { class: "busy", "aria-label": "is being answered" }) : null);
    const row = h("li", { "data-conversation": id, class: id === current ? "current" : "" }, open,
      iconButton("edit", `Rename ${name}`, () => this.#rename(row, id, title), { "data-act": "rename" }),
      iconButton("trash", `Delete ${name}`, () => this.#actions.remove(id), { "data-act": "delete" }));
    return row;
  }

  #rename(row, id, title) {
    const field = h("input", { type: "text", class: "rename", "aria-label": "Title", maxlength: 200 });
    field.value = title;
    let over = false;
    const end = (keep) => {
      if (over) return;
      over = true;
      this.#renaming = null;
      field.blur();
      this.#actions.rename(id, keep ? field.value.trim() : title);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) end(true);
      if (event.key === "Escape") {
        event.stopPropagation();
        end(false);
      }
    });
    field.addEventListener("blur", () => end(true));
    this.#renaming = id;
    row.replaceChildren(field);
    field.focus();
    field.select();
  }
}
