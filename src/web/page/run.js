// One answer being made: sends the request, fills the message as pieces come, measures, and deals
// with a server that is full or asks for a key.

import { ApiError } from "./api.js";

const MAX_TRIES = 6;
const MAX_WAIT_S = 120;
const MIN_MEASURED_MS = 10;

// The states of an assistant message: "waiting" for the first token, "streaming", "full" (the server
// was full and is asked again at node.retryAt), then "done", "stopped" or "failed" for good.
export const isActive = (node) => ["waiting", "streaming", "full"].includes(node.state);

export class Run {
  #api;
  #node;
  #body;
  #askForKey;
  #changed;
  #aborter = new AbortController();
  #wake = null;
  #thinkingSince = null;
  #sentAt = null;
  #firstAt = null;
  #lastAt = null;

  // `askForKey(error)` resolves to whether there is another than the refused one; `changed` is called after every change.
  constructor(api, node, body, askForKey, changed) {
    this.#api = api;
    this.#node = node;
    this.#body = body;
    this.#askForKey = askForKey;
    this.#changed = changed;
  }

  stop() {
    this.#aborter.abort();
    this.#wake?.();
  }

  // Asks a full server again at once.
  retryNow() {
    this.#wake?.();
  }

  // Ends when the answer does, however it does; never throws for what a server or network did.
  async finish() {
    const node = this.#node;
    try {
      for (let attempt = 1; !(await this.#try(attempt)); ++attempt);
      node.state = "done";
    } catch (error) {
      if (error.name === "AbortError") {
        node.state = "stopped";
      } else {
        node.state = "failed";
        node.error = error.message;
        if (!(error instanceof ApiError)) console.error(error);
      }
    }
    this.#endThinking();
    this.#measure();
    delete node.retryAt;
    this.#changed();
  }

  // Whether it is over; false to try again.
  async #try(attempt) {
    const node = this.#node;
    node.state = "waiting";
    this.#changed();
    try {
      await this.#stream();
      return true;
    } catch (error) {
      const nothingCame = this.#firstAt === null;
      if (error.status === 401 && nothingCame && (await this.#askForKey(error))) return false;
      const full = error.status === 429 || error.status === 503;
      const seconds = error.retryAfter ?? Math.min(2 ** attempt, 30);
      if (!full || !nothingCame || attempt >= MAX_TRIES || seconds > MAX_WAIT_S) throw error;
      await this.#wait(seconds);
      return false;
    }
  }

  async #wait(seconds) {
    const node = this.#node;
    node.state = "full";
    node.retryAt = Date.now() + seconds * 1000;
    let woken = false;
    const timer = setInterval(() => (Date.now() >= node.retryAt ? this.#wake() : this.#changed()), 250);
    await new Promise((resolve) => {
      this.#wake = () => {
        if (!woken) resolve();
        woken = true;
      };
      this.#changed();
    });
    clearInterval(timer);
    this.#wake = null;
    this.#aborter.signal.throwIfAborted();
  }

  async #stream() {
    this.#sentAt = performance.now();
    for await (const chunk of this.#api.chat(this.#body, this.#aborter.signal)) {
      const choice = chunk.choices?.[0];
      if (choice?.delta) this.#add(choice.delta);
      if (choice?.finish_reason) this.#node.finish = String(choice.finish_reason);
      if (chunk.usage) this.#count(chunk.usage);
      this.#changed();
    }
  }

  #add(delta) {
    const node = this.#node;
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    const content = delta.content ?? "";
    const calls = delta.tool_calls ?? [];
    if (reasoning === "" && content === "" && calls.length === 0) return;
    const now = performance.now();
    this.#firstAt ??= now;
    this.#lastAt = now;
    node.stats.firstTokenMs ??= now - this.#sentAt;
    node.state = "streaming";
    if (reasoning !== "") this.#thinkingSince ??= now;
    else this.#endThinking();
    node.reasoning += reasoning;
    node.content += content;
    for (const call of calls) this.#addToolCall(call);
  }

  #addToolCall({ index = 0, id, function: called }) {
    const calls = this.#node.toolCalls;
    if (!Number.isInteger(index) || index < 0 || index > calls.length) return;
    calls[index] ??= { id: "", name: "", arguments: "" };
    if (id) calls[index].id = String(id);
    calls[index].name += called?.name ?? "";
    calls[index].arguments += called?.arguments ?? "";
  }

  #endThinking() {
    if (this.#thinkingSince === null) return;
    this.#node.stats.thinkingMs = performance.now() - this.#thinkingSince;
    this.#thinkingSince = null;
  }

  #count(usage) {
    const { stats } = this.#node;
    stats.promptTokens = usage.prompt_tokens ?? null;
    stats.outputTokens = usage.completion_tokens ?? null;
    stats.cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? null;
  }

  // Tokens a second between the first and the last one: without the wait for the first. An answer that
  // came in one piece is measured from the question on.
  #measure() {
    const { stats } = this.#node;
    const ms = this.#lastAt - this.#firstAt;
    if (!(stats.outputTokens > 1)) stats.tokensPerSecond = null;
    else if (ms >= MIN_MEASURED_MS) stats.tokensPerSecond = ((stats.outputTokens - 1) * 1000) / ms;
    else stats.tokensPerSecond = (stats.outputTokens * 1000) / Math.max(1, this.#lastAt - this.#sentAt);
  }
}
