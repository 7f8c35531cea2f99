// Conversations as a file, out and in. What comes in may be anything: it is rebuilt field by field,
// with ids of its own.

import { newId } from "./tree.js";

const FORMAT = "quire-conversations";
const ROLES = new Set(["user", "assistant", "tool"]);
const MAX_CONVERSATIONS = 10000;
const MAX_NODES = 100000;

export function exportText(conversations) {
  return JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
}

// The conversations in the text of such a file. Throws an Error that says what is wrong with it.
export function importText(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`This file is not JSON: ${error.message}.`);
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error("This file holds no conversations exported from this page.");
  }
  if (file.version !== 1) throw new Error(`This file has version ${file.version}; this page reads version 1.`);
  if (file.conversations.length > MAX_CONVERSATIONS) {
    throw new Error(`This file holds more than ${MAX_CONVERSATIONS} conversations.`);
  }
  return file.conversations.map((conversation, index) => {
    try {
      return readConversation(conversation);
    } catch (error) {
      throw new Error(`Conversation ${index + 1} of the file: ${error.message}`);
    }
  });
}

function expect(condition, what) {
  if (!condition) throw new Error(what);
}

const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const time = (value) => (Number.isFinite(value) && value >= 0 ? value : Date.now());
const text = (value) => (typeof value === "string" ? value : "");
const number = (value) => (Number.isFinite(value) ? value : null);

function readConversation(source) {
  expect(isRecord(source) && isRecord(source.nodes) && isRecord(source.root), "it has no nodes.");
  const nodes = new Map(Object.entries(source.nodes));
  expect(nodes.size <= MAX_NODES, `it has more than ${MAX_NODES} messages.`);
  const result = {
    id: newId(), title: text(source.title).slice(0, 200), created: time(source.created),
    updated: time(source.updated), nodes: {}, root: { children: [], current: 0 },
  };
  // From the top down, so that every message has its parent and none comes twice.
  const pending = [[source.root, null, result.root]];
  const seen = new Set();
  while (pending.length > 0) {
    const [from, parent, to] = pending.pop();
    expect(Array.isArray(from.children), "a message has no list of answers.");
    for (const id of from.children) {
      const child = nodes.get(id);
      expect(isRecord(child), "a message that is referred to is missing.");
      expect(!seen.has(id), "a message appears twice.");
      seen.add(id);
      const node = readNode(child, parent);
      result.nodes[node.id] = node;
      to.children.push(node.id);
      pending.push([child, node.id, node]);
    }
    const last = Math.max(0, to.children.length - 1);
    to.current = Number.isInteger(from.current) ? Math.min(Math.max(from.current, 0), last) : last;
  }
  return result;
}

function readNode(source, parent) {
  expect(ROLES.has(source.role), "a message has an unknown role.");
  expect(parent !== null || source.role === "user", "its first message is not the user's.");
  expect(typeof source.content === "string", "a message has no text.");
  return {
    id: newId(), parent, role: source.role, content: source.content, reasoning: text(source.reasoning),
    toolCalls: readToolCalls(source.toolCalls), toolCallId: text(source.toolCallId),
    created: time(source.created), children: [], current: 0, model: text(source.model),
    state: "done", finish: text(source.finish), error: text(source.error), stats: readStats(source.stats),
  };
}

function readToolCalls(source) {
  if (!Array.isArray(source)) return [];
  return source.filter(isRecord).slice(0, 128).map((call) => ({
    id: text(call.id), name: text(call.name), arguments: text(call.arguments),
  }));
}

function readStats(source) {
  const names = ["firstTokenMs", "thinkingMs", "tokensPerSecond", "promptTokens", "outputTokens", "cachedTokens"];
  return isRecord(source) ? Object.fromEntries(names.map((name) => [name, number(source[name])])) : {};
}
