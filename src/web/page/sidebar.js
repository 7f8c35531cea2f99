// The list of conversations.

import { h, iconButton } from "./dom.js";

function label(button, text) {
  button.setAttribute("aria-label", text);
  button.title = text;
}

export class Sidebar {
  #list;
  #actions;
  #rows = new Map();  // conversation id to what #row() makes
  #renaming = null;

  // `actions`: open(id), rename(id, title), remove(id).
  constructor(list, actions) {
    this.#list = list;
    this.#actions = actions;
  }

  // `entries`: [{id, title, busy}], `current`: the shown one's id. Rows stay the elements they are: a
  // click or the focus on one is not lost because an answer went on meanwhile, here or in another tab.
  show(entries, current) {
    if (this.#renaming !== null && this.#list.contains(document.activeElement)) return;
    this.#renaming = null;
    const focused = this.#list.contains(document.activeElement) ? document.activeElement : null;
    const rows = entries.map((entry) => this.#updated(entry, current));
    const shown = new Set(rows);
    for (const element of [...this.#list.children]) if (!shown.has(element)) element.remove();
    rows.forEach((row, index) => {
      const there = this.#list.children[index] ?? null;
      if (there !== row) this.#list.insertBefore(row, there);
    });
    const ids = new Set(entries.map(({ id }) => id));
    for (const id of this.#rows.keys()) if (!ids.has(id)) this.#rows.delete(id);
    if (focused?.isConnected && document.activeElement !== focused) focused.focus();
  }

  #updated({ id, title, busy }, current) {
    if (!this.#rows.has(id)) this.#rows.set(id, this.#row(id));
    const row = this.#rows.get(id);
    const name = title || "New conversation";
    row.element.classList.toggle("current", id === current);
    if (id === current) row.open.setAttribute("aria-current", "true");
    else row.open.removeAttribute("aria-current");
    if (!busy) row.busy.remove();
    else if (row.busy.parentNode !== row.open) row.open.append(row.busy);
    if (row.title !== title) {
      row.title = title;
      row.name.textContent = name;
      label(row.rename, `Rename ${name}`);
      label(row.remove, `Delete ${name}`);
    }
    return row.element;
  }

  #row(id) {
    const row = { title: null };
    row.name = h("span", { class: "title" });
    row.busy = h("span", { class: "busy", "aria-label": "is being answered" });
    row.open = h("button", { type: "button", class: "open", onclick: () => this.#actions.open(id) }, row.name);
    row.rename = iconButton("edit", "Rename", () => this.#rename(row.element, id, row.title), { "data-act": "rename" });
    row.remove = iconButton("trash", "Delete", () => this.#actions.remove(id), { "data-act": "delete" });
    row.element = h("li", { "data-conversation": id }, row.open, row.rename, row.remove);
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
    this.#rows.delete(id);  // made anew when this is over
    row.replaceChildren(field);
    field.focus();
    field.select();
  }
}
