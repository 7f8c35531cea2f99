// Puts the page together.

import { Api } from "./api.js";
import { Chats } from "./chats.js";
import { askForKey, confirm } from "./dialogs.js";
import { icon, saveFile } from "./dom.js";
import { EngineView } from "./engine.js";
import { exportText, importText } from "./exchange.js";
import { readSettings } from "./settings.js";
import { SettingsPanel } from "./settings_panel.js";
import { Sidebar } from "./sidebar.js";
import { ConversationStore, MemoryStore, preferences } from "./store.js";
import { nextTheme, themeLabel } from "./theme.js";
import { Thread, welcome } from "./thread.js";
import { shownPath } from "./tree.js";

const $ = (id) => document.getElementById(id);
const wide = matchMedia("(min-width: 60rem)");
const MAX_IMPORT_BYTES = 64 * 1024 * 1024;

const api = new Api();
let settings = readSettings(preferences.get("settings"));
let models = [];
let asking = null;  // the question for a key that is open

function banner(text) {
  $("banner").textContent = text;
  $("banner").hidden = text === "";
}

async function openStore() {
  try {
    return await ConversationStore.open();
  } catch {
    banner("This browser keeps nothing for this page: conversations last until it is closed.");
    return new MemoryStore();
  }
}

// Asks for a key after one was refused, once for all that need it; resolves to whether there is another.
async function newKey({ keyNumber }) {
  if (keyNumber !== api.keyNumber) return true;
  asking ??= askForKey(api.hasKey).then((answer) => {
    asking = null;
    if (answer === null) return false;
    api.setKey(answer.key, answer.keep);
    $("forget-key").hidden = false;
    return true;
  });
  return asking;
}

const model = () => (models.includes(settings.model) ? settings.model : (models[0] ?? settings.model));

const chats = new Chats({
  store: await openStore(), api, settings: () => ({ ...settings, model: model() }), askForKey: newKey,
  changed: (conversation, what) => show(conversation, what), failed: banner,
});

const thread = new Thread({
  scroller: $("scroller"), list: $("thread"), toEnd: $("to-end"), empty: () => welcome(model(), ask),
  actions: {
    retry: (node) => chats.retry(node),
    retryNow: () => chats.retryNow(),
    edit(node, text) {
      const sent = chats.edit(node, text);
      if (sent) $("prompt").focus();
      return sent;
    },
    sendToolResults: (node, texts) => chats.sendToolResults(node, texts),
    showVersion(node, step) {
      chats.showVersion(node, step);
      $("thread").querySelector(".versions:not([hidden]) button:not([disabled])")?.focus();
    },
  },
});

const sidebar = new Sidebar($("conversations"), {
  open: (id) => {
    goTo(id);
    if (!wide.matches) toggleSidebar(false);
  },
  rename: (id, title) => chats.rename(id, title),
  remove: async (id) => {
    const { title } = chats.list().find((conversation) => conversation.id === id);
    if (await confirm(`Delete “${title}”? It is kept in this browser alone.`, "Delete")) await chats.remove(id);
  },
});

const engine = new EngineView(api, $("engine"));
const panel = new SettingsPanel($("settings-form"), settings, (changed) => {
  settings = changed;
  preferences.set("settings", JSON.stringify(settings));
  showModel();
});

// Shows what changed; see Chats.
function show(conversation, what) {
  const shown = conversation === chats.current;
  if (shown) {
    thread.setBusy(chats.busy());
    if (what === "opened") {
      thread.show(conversation);
      if (location.hash.slice(1) !== conversation.id) history.replaceState(null, "", location.pathname);
    } else if (what === "shape") {
      thread.draw();
      if (chats.busy()) thread.follow();
    } else {
      thread.changed();
    }
    if (what === "finished") announce();
    showFrame();
  }
  if (what !== "text") showList();
  if (what === "finished" && models.length === 0) loadModels();
}

function showList() {
  sidebar.show(chats.list().map(({ id, title }) => ({ id, title, busy: chats.busy(id) })), chats.current.id);
}

function showFrame() {
  const { title } = chats.current;
  if ($("title").textContent !== (title || "New conversation")) {
    $("title").textContent = title || "New conversation";
    document.title = title === "" ? "quire" : `${title} · quire`;
  }
  document.body.classList.toggle("empty", shownPath(chats.current).length === 0);
  const busy = chats.busy();
  $("stop").hidden = !busy;
  $("send").hidden = busy;
}

function showModel() {
  $("model-name").textContent = model();
  thread.renewEmpty();
}

function announce() {
  const node = shownPath(chats.current).at(-1);
  const states = { done: "Answer: ", stopped: "Stopped. ", failed: `${node.error} ` };
  $("announcer").textContent = ((states[node.state] ?? "") + node.content).slice(0, 2000);
}

function goTo(id) {
  if (chats.current.id === id) return;
  history.pushState(null, "", id === null ? location.pathname : `#${id}`);
  chats.open(id);
}

function ask(text) {
  if (text.trim() === "" || chats.busy()) return;
  chats.send(text);
  if (location.hash.slice(1) !== chats.current.id) history.replaceState(null, "", `#${chats.current.id}`);
  $("prompt").value = "";
  growPrompt();
  $("prompt").focus();
}

function growPrompt() {
  const field = $("prompt");
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, innerHeight * 0.4)}px`;
}

function toggleSidebar(open) {
  $("sidebar").hidden = !open;
  $("toggle-sidebar").setAttribute("aria-expanded", String(open));
  const over = open && !wide.matches;
  $("shade").hidden = !over;
  document.querySelector(".page").inert = over;
  if (wide.matches) preferences.set("sidebar", open ? "open" : "closed");
  else if (open) $("close-sidebar").focus();
  else $("toggle-sidebar").focus();
}

function toggleSettings(open) {
  $("settings").hidden = !open;
  $("toggle-settings").setAttribute("aria-expanded", String(open));
  document.querySelector(".page").inert = open && !wide.matches;
  if (open) $("setting-model").focus();
  else $("toggle-settings").focus();
}

async function toggleEngine(open) {
  $("toggle-engine").setAttribute("aria-expanded", String(open));
  try {
    await engine.toggle(open);
  } catch (error) {
    banner(error.message);
  }
}

async function loadModels() {
  for (;;) {
    try {
      const served = await api.models();
      models = served.map(({ id }) => id);
      panel.setModels(served, settings.model);
      banner("");
      break;
    } catch (error) {
      if (error.status === 401 && (await newKey(error))) continue;
      if (models.length === 0) banner(`The list of models could not be read: ${error.message}`);
      break;
    }
  }
  showModel();
}

async function importFile(file) {
  try {
    if (file.size > MAX_IMPORT_BYTES) throw new Error("This file is larger than 64 MB.");
    const conversations = importText(await file.text());
    await chats.add(conversations);
    if (conversations.length > 0) goTo(conversations[0].id);
    banner("");
  } catch (error) {
    banner(`Nothing was imported. ${error.message}`);
  }
}

function editLast() {
  const node = shownPath(chats.current).filter(({ role }) => role === "user").at(-1);
  if (!node || chats.busy()) return false;
  thread.view(node).startEditing();
  return true;
}

// Keys that work everywhere on the page.
function pressed(event) {
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  const inField = /^(input|textarea|select)$/i.test(event.target.tagName);
  if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !inField)) {
    event.preventDefault();
    $("prompt").focus();
  } else if (event.key === "Escape") {
    if (chats.busy()) chats.stop();
    else if (!$("settings").hidden) toggleSettings(false);
    else if (!$("shade").hidden) toggleSidebar(false);
  }
}

function wire() {
  const icons = { new: "plus", "close-sidebar": "close", "toggle-sidebar": "menu", "toggle-engine": "pulse", theme: "theme",
    "toggle-settings": "sliders", "close-settings": "close", stop: "stop", send: "send", "to-end": "down" };
  for (const [id, name] of Object.entries(icons)) $(id).prepend(icon(name));
  const click = (id, action) => $(id).addEventListener("click", action);
  const startNew = () => {
    goTo(null);
    if (!wide.matches && !$("shade").hidden) toggleSidebar(false);
    $("prompt").focus();
  };
  click("new", startNew);
  click("brand", (event) => { event.preventDefault(); startNew(); });
  click("toggle-sidebar", () => toggleSidebar($("sidebar").hidden));
  click("close-sidebar", () => toggleSidebar(false));
  click("shade", () => toggleSidebar(false));
  click("toggle-engine", () => toggleEngine($("engine").hidden));
  click("toggle-settings", () => toggleSettings($("settings").hidden));
  click("close-settings", () => toggleSettings(false));
  click("reset-settings", () => panel.reset());
  click("forget-key", () => { api.forgetKey(); $("forget-key").hidden = true; });
  click("stop", () => chats.stop());
  click("export", () => saveFile("quire-conversations.json", "application/json", exportText(chats.list())));
  click("import", () => $("import-file").click());
  $("import-file").addEventListener("change", ({ target }) => {
    if (target.files.length > 0) importFile(target.files[0]);
    target.value = "";
  });
  const showTheme = () => { for (const name of ["title", "aria-label"]) $("theme").setAttribute(name, themeLabel()); };
  click("theme", () => { nextTheme(); showTheme(); engine.restyle(); });
  showTheme();
  for (const id of ["toggle-sidebar", "toggle-engine", "toggle-settings", "close-settings", "close-sidebar"]) {
    $(id).title = $(id).getAttribute("aria-label");
  }
  $("stop").title = "Stop (Esc)";
  $("prompt").title = "Ctrl+K or / comes here, Up edits the last message";
  $("composer").addEventListener("submit", (event) => { event.preventDefault(); ask($("prompt").value); });
  $("prompt").addEventListener("input", growPrompt);
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask($("prompt").value);
    } else if (event.key === "ArrowUp" && $("prompt").value === "" && editLast()) {
      event.preventDefault();
    }
  });
  document.addEventListener("keydown", pressed);
  addEventListener("popstate", () => chats.open(location.hash.slice(1) || null));
  wide.addEventListener("change", layOut);
}

function layOut() {
  $("shade").hidden = true;
  document.querySelector(".page").inert = false;
  $("sidebar").hidden = !wide.matches || preferences.get("sidebar") === "closed";
  $("toggle-sidebar").setAttribute("aria-expanded", String(!$("sidebar").hidden));
}

wire();
layOut();
$("forget-key").hidden = !api.hasKey;
await chats.load();
chats.open(location.hash.slice(1) || null);
if (wide.matches) $("prompt").focus();
await loadModels();
