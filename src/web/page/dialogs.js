// Questions to the user, in modal dialogs: the browser keeps the focus inside and gives it back.

import { h } from "./dom.js";

function show(build) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { class: "dialog" });
    dialog.append(build((value) => {
      dialog.returnValue = "answered";
      resolve(value);
      dialog.close();
    }));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Whether the user agrees.
export async function confirm(question, yes) {
  const agreed = await show((answer) => h("form", { method: "dialog", onsubmit: () => answer(true) },
    h("p", {}, question),
    h("div", { class: "dialog-buttons" },
      h("button", { type: "button", class: "button", onclick: () => answer(null) }, "Cancel"),
      h("button", { type: "submit", class: "button danger" }, yes))));
  return agreed === true;
}

// {key, keep}, or null. `refused`: there was a key, and the server did not take it.
export function askForKey(refused) {
  return show((answer) => {
    const key = h("input", { type: "password", id: "api-key", autocomplete: "off", required: true, spellcheck: "false" });
    const keep = h("input", { type: "checkbox", id: "keep-key" });
    const submit = (event) => {
      event.preventDefault();
      if (key.value.trim() !== "") answer({ key: key.value.trim(), keep: keep.checked });
    };
    return h("form", { class: "key-form", onsubmit: submit },
      h("h2", {}, "This server asks for an API key"),
      refused ? h("p", { class: "error", role: "alert" }, "The server did not accept that key.") : null,
      h("label", { for: "api-key" }, "API key"), key,
      h("label", { class: "check" }, keep, "Keep it in this browser; otherwise until this tab is closed"),
      h("div", { class: "dialog-buttons" },
        h("button", { type: "button", class: "button", onclick: () => answer(null) }, "Cancel"),
        h("button", { type: "submit", class: "button primary" }, "Use this key")));
  });
}
