// Small helpers around the DOM. Text always goes in as text, never as markup.

// h("button", {class: "x", onclick: f, "aria-label": "..."}, child, "text"): an element. Properties
// that are functions become listeners; true is an empty attribute; null and false leave one out.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const ICONS = {
  menu: "M4 6h16M4 12h16M4 18h16",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  retry: "M19 12a7 7 0 1 1-2.1-5M19 3v4.5h-4.5",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  trash: "M5 7h14M10 4h4M7 7l1 13h8l1-13",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  close: "M6 6l12 12M18 6L6 18",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  sliders: "M4 8h9M17 8h3M4 16h3M11 16h9M15 5.5v5M9 13.5v5",
  pulse: "M3 12h4l3-7 4 14 3-7h4",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  key: "M14 10a4 4 0 1 0-3.5 4L12 12.5h2v2h2v2h3v-3l-5-5z",
  wrench: "M14.5 6.5a4 4 0 0 0-5 5L4 17l3 3 5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3z",
};

export function icon(name) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(namespace, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// A button with an icon alone; its label is read out and shown as a tooltip.
export function iconButton(name, label, onclick, attributes = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name));
}

// Puts text on the clipboard; on plain http, where browsers keep the clipboard from pages, through a
// selection.
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = h("textarea", { class: "visually-hidden", "aria-hidden": "true" });
  field.value = text;
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  if (!copied) throw new Error("The browser did not allow copying.");
}

// Shows on the button that what it does was done, for a moment.
export function flash(button, name, label) {
  const before = [...button.childNodes];
  const labelBefore = button.getAttribute("aria-label");
  button.replaceChildren(icon(name), ...(button.classList.contains("icon-button") ? [] : [label]));
  button.setAttribute("aria-label", label);
  setTimeout(() => {
    button.replaceChildren(...before);
    if (labelBefore === null) button.removeAttribute("aria-label");
    else button.setAttribute("aria-label", labelBefore);
  }, 1600);
}

// Offers text as a file to save.
export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
