// JSON as a tree, whose branches open and close.

import { h } from "./dom.js";

// What has more values than this is shown as text.
const MAX_VALUES = 5000;
const OPEN_DEPTH = 3;

// The tree of a text that is a JSON object or array; null for any other, and where it is too large.
export function jsonTree(text) {
  if (!/^\s*[{[]/.test(text)) return null;
  try {
    return jsonValue(JSON.parse(text));
  } catch {
    return null;
  }
}

// The tree of any value; null where it is too large.
export function jsonValue(value) {
  const left = { values: MAX_VALUES };
  const tree = item(null, value, 0, left);
  return left.values < 0 ? null : h("ul", { class: "json-tree", "aria-label": "JSON" }, tree);
}

function item(name, value, depth, left) {
  const label = name === null ? null : h("span", { class: "json-name" }, `${name}: `);
  if (--left.values < 0) return null;
  if (typeof value !== "object" || value === null) {
    return h("li", {}, label, h("span", { class: `json-${value === null ? "null" : typeof value}` }, JSON.stringify(value)));
  }
  const members = Object.entries(value);
  const size = Array.isArray(value) ? `[${members.length}]` : `{${members.length}}`;
  if (members.length === 0) return h("li", {}, label, size);
  return h("li", {}, h("details", { open: depth < OPEN_DEPTH }, h("summary", {}, label, size),
    h("ul", {}, members.map(([key, member]) => item(key, member, depth + 1, left)))));
}
