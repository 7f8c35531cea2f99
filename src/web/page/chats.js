// The conversations and the answers being made in them: everything that happens to them goes through
// here, is kept, and is then told to whoever shows it.

import { Run, isActive } from "./run.js";
import { requestFields } from "./settings.js";
import { addNode, apiMessages, newConversation, showVersion, shownPath, titleFrom } from "./tree.js";

const SAVE_EVERY_MS = 2000;

export class Chats {
  #all = new Map();
  #runs = new Map();  // conversation id to {run, node}
  #store;
  #api;
  #settings;
  #askForKey;
  #changed;
  #failed;
  current = newConversation();

  // `settings()` gives those in force, the model's id among them. `changed(conversation, what)` is
  // told of "text" (an answer grew), "shape" (messages came or went), "list" and "finished". `failed`
  // is told of what could not be kept, in a sentence.
  constructor({ store, api, settings, askForKey, changed, failed }) {
    this.#store = store;
    this.#api = api;
    this.#settings = settings;
    this.#askForKey = askForKey;
    this.#changed = changed;
    this.#failed = failed;
  }

  async load() {
    for (const conversation of await this.#store.all()) {
      for (const node of Object.values(conversation.nodes)) {
        if (isActive(node)) {
          node.state = "failed";
          node.error = "The page was closed before the answer was complete.";
        }
      }
      this.#all.set(conversation.id, conversation);
    }
    this.#store.watch((id) => this.#refresh(id));
  }

  // Takes what another tab did to a conversation.
  async #refresh(id) {
    if (this.busy(id)) return;
    const fresh = await this.#store.get(id);
    if (fresh) this.#all.set(id, fresh);
    else this.#all.delete(id);
    if (this.current.id === id) this.open(id);
    else this.#changed(this.current, "list");
  }

  // The last changed first.
  list() {
    return [...this.#all.values()].sort((a, b) => b.updated - a.updated);
  }

  busy(id = this.current.id) {
    return this.#runs.has(id);
  }

  // Shows that conversation; a new one where there is none with that id.
  open(id) {
    this.current = this.#all.get(id) ?? newConversation();
    this.#changed(this.current, "opened");
  }

  async rename(id, title) {
    const conversation = this.#all.get(id);
    if (title !== "") conversation.title = title.slice(0, 200);
    this.#changed(conversation, "list");
    await this.#save(conversation);
  }

  async remove(id) {
    this.#runs.get(id)?.run.stop();
    this.#all.delete(id);
    if (this.current.id === id) this.open(null);
    this.#changed(this.current, "list");
    await this.#guard(this.#store.remove(id));
  }

  async add(conversations) {
    for (const conversation of conversations) {
      this.#all.set(conversation.id, conversation);
      await this.#save(conversation);
    }
    this.#changed(this.current, "list");
  }

  // Asks at the end of what is shown.
  send(text) {
    const { current } = this;
    if (this.busy()) return;
    const last = shownPath(current).at(-1);
    const node = addNode(current, last?.id ?? null, { role: "user", content: text });
    if (current.title === "") current.title = titleFrom(text);
    this.#all.set(current.id, current);
    this.#answer(current, node);
  }

  // Another answer to the same question, beside the first.
  retry(node) {
    this.#answer(this.current, this.current.nodes[node.parent]);
  }

  // Another question in the place of `node`; false, and nothing happens, while an answer is made.
  edit(node, text) {
    if (this.busy()) return false;
    this.#answer(this.current, addNode(this.current, node.parent, { role: "user", content: text }));
    return true;
  }

  // What the tools answered to the calls of `node`, in their order.
  sendToolResults(node, texts) {
    if (this.busy()) return;
    let last = node;
    node.toolCalls.forEach((call, index) => {
      last = addNode(this.current, last.id, { role: "tool", content: texts[index], toolCallId: call.id });
    });
    this.#answer(this.current, last);
  }

  showVersion(node, step) {
    showVersion(this.current, node, step);
    this.#changed(this.current, "shape");
    this.#save(this.current);
  }

  // Ends the answer that is being made in what is shown; what came stays.
  stop() {
    this.#runs.get(this.current.id)?.run.stop();
  }

  retryNow() {
    this.#runs.get(this.current.id)?.run.retryNow();
  }

  async #answer(conversation, question) {
    if (this.busy(conversation.id)) return;
    const settings = this.#settings();
    const body = {
      ...(settings.model === "" ? {} : { model: settings.model }), messages: apiMessages(conversation, question, settings.system),
      stream: true, stream_options: { include_usage: true }, ...requestFields(settings),
    };
    const node = addNode(conversation, question.id,
      { role: "assistant", model: settings.model, state: "waiting", finish: "", error: "", stats: {} });
    let savedAt = performance.now();
    const grew = () => {
      this.#changed(conversation, "text");
      if (performance.now() - savedAt < SAVE_EVERY_MS) return;
      savedAt = performance.now();
      this.#save(conversation);
    };
    const run = new Run(this.#api, node, body, this.#askForKey, grew);
    this.#runs.set(conversation.id, { run, node });
    this.#changed(conversation, "shape");
    this.#save(conversation);
    await run.finish();
    this.#runs.delete(conversation.id);
    conversation.updated = Date.now();
    this.#changed(conversation, "finished");
    await this.#save(conversation);
  }

  async #save(conversation) {
    if (this.#all.has(conversation.id)) await this.#guard(this.#store.put(conversation));
  }

  async #guard(promise) {
    try {
      await promise;
    } catch (error) {
      this.#failed(`This browser could not keep the conversation: ${error.message || error.name}.`);
    }
  }
}
