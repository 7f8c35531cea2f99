// A tool call as a card: the function's name, and its arguments as a table.

import { copyText, flash, h, icon, iconButton } from "./dom.js";
import { jsonValue } from "./json_tree.js";

// `complete`: the model has written all of it. `children` stand below the arguments.
export function toolCard(call, complete, ...children) {
  const copy = iconButton("copy", "Copy the arguments", async () => {
    try {
      await copyText(call.arguments);
      flash(copy, "check", "Copied");
    } catch {
      flash(copy, "close", "The browser did not allow copying");
    }
  });
  return h("section", { class: "tool-call", "aria-label": `Call of ${call.name || "a tool"}` },
    h("div", { class: "tool-head" },
      h("div", { class: "tool-name" }, icon("wrench"), call.name || "…"), complete ? copy : null),
    argumentsView(call.arguments, complete), ...children);
}

// What is not JSON (yet) is shown as the text that it is.
function argumentsView(text, complete) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return text === "" && complete ? noArguments() : h("pre", { tabindex: 0 }, text);
  }
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject && Object.keys(value).length === 0) return noArguments();
  const view = isObject ? argumentTable(value) : jsonValue(value);
  return view ?? h("pre", { tabindex: 0 }, text);
}

const noArguments = () => h("p", { class: "tool-empty" }, "No arguments");

// Null where an argument is too large to be shown as a tree.
function argumentTable(object) {
  const rows = [];
  for (const [name, value] of Object.entries(object)) {
    const view = argumentValue(value);
    if (view === null) return null;
    rows.push(h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, view)));
  }
  return h("div", { class: "table-frame", tabindex: 0 }, h("table", { class: "tool-arguments" }, h("tbody", {}, rows)));
}

// A text of several lines is shown as these lines.
function argumentValue(value) {
  if (typeof value === "string" && value.includes("\n")) return h("pre", {}, value);
  return jsonValue(value);
}
