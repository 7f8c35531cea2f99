// Talks to the server that the page came from.

import { SseParser } from "./sse.js";
import { preferences } from "./store.js";

const KEY = "apiKey";

// status 0: the server could not be reached, or the connection broke. retryAfter: in seconds, or null.
// keyNumber: which of the keys that this page had was sent.
export class ApiError extends Error {
  constructor(message, status, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
    this.keyNumber = null;
  }
}

export class Api {
  #key;
  keyNumber = 0;

  constructor() {
    this.#key = sessionKey() ?? preferences.get(KEY);
  }

  get hasKey() {
    return this.#key !== null;
  }

  // `keep`: in this browser until it is removed; otherwise until this tab is closed.
  setKey(key, keep) {
    this.forgetKey();
    this.#key = key;
    this.keyNumber += 1;
    if (keep) preferences.set(KEY, key);
    else keepSessionKey(key);
  }

  forgetKey() {
    this.#key = null;
    preferences.remove(KEY);
    keepSessionKey(null);
  }

  async #fetch(path, options = {}) {
    const headers = { ...options.headers };
    const { keyNumber } = this;
    if (this.#key !== null) headers.Authorization = `Bearer ${this.#key}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers, credentials: "omit" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The server cannot be reached.", 0);
    }
    if (!response.ok) throw Object.assign(await errorFrom(response), { keyNumber });
    return response;
  }

  // The models as {id, parent}, the first being the one that is served; `parent` is the id of the
  // model that an adapter is for, and null where it is no adapter.
  async models(signal) {
    const response = await this.#fetch("/v1/models", { signal });
    const { data } = await response.json();
    return data.map(({ id, parent }) => ({ id: String(id), parent: parent == null ? null : String(parent) }));
  }

  async metrics(signal) {
    return (await this.#fetch("/metrics", { signal })).text();
  }

  // The chunks of a streamed chat completion, as they come. Throws ApiError; whatever came before
  // stays valid.
  async *chat(body, signal) {
    const response = await this.#fetch("/v1/chat/completions", {
      method: "POST", signal, body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
    });
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    const parser = new SseParser();
    for (;;) {
      const { done, value } = await readFrom(reader);
      for (const data of parser.push(done ? decoder.decode() : decoder.decode(value, { stream: true }))) {
        if (data === "[DONE]") return;
        yield readChunk(data);
      }
      if (done) throw new ApiError("The connection ended before the answer did.", 0);
    }
  }
}

async function readFrom(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection broke before the answer was complete.", 0);
  }
}

function readChunk(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiError("The server sent something that is not JSON.", 0);
  }
  if (chunk?.error) {
    const { message, code } = chunk.error;
    throw new ApiError(String(message ?? chunk.error), Number.isInteger(code) ? code : 500);
  }
  return chunk;
}

// An answer that is no success: OpenAI's {"error": {"message"}} or plain text.
async function errorFrom(response) {
  const text = await response.text().catch(() => "");
  let message = text.trim().slice(0, 2000);
  try {
    const error = JSON.parse(text).error;
    message = String(error.message ?? error);
  } catch {
    // Not JSON: the text is the message.
  }
  const after = response.headers.get("Retry-After");
  const seconds = after !== null && /^\d+$/.test(after.trim()) ? Number(after) : null;
  return new ApiError(message || `The server answered ${response.status}.`, response.status, seconds);
}

function sessionKey() {
  try {
    return sessionStorage.getItem(`quire.${KEY}`);
  } catch {
    return null;
  }
}

function keepSessionKey(key) {
  try {
    if (key === null) sessionStorage.removeItem(`quire.${KEY}`);
    else sessionStorage.setItem(`quire.${KEY}`, key);
  } catch {
    // Kept for this page alone.
  }
}
