// A conversation: a tree of messages, so that an edited question or another answer becomes a branch
// beside the first. Plain data, kept in the browser as it is:
//   {id, title, created, updated, nodes: {<id>: node}, root: {children, current}}
// A node is {id, parent (id or null), role, content, reasoning, toolCalls, children: [id], current,
// ...}; `current` is the index of the child that is shown.

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("");
}

export function newConversation(now = Date.now()) {
  return { id: newId(), title: "", created: now, updated: now, nodes: {}, root: { children: [], current: 0 } };
}

function siblingsOwner(conversation, node) {
  return node.parent === null ? conversation.root : conversation.nodes[node.parent];
}

// Adds a node below `parent` (null: at the top) and shows it.
export function addNode(conversation, parent, fields, now = Date.now()) {
  const node = {
    id: newId(), parent, role: "user", content: "", reasoning: "", toolCalls: [], created: now,
    children: [], current: 0, ...fields,
  };
  conversation.nodes[node.id] = node;
  const owner = siblingsOwner(conversation, node);
  owner.children.push(node.id);
  owner.current = owner.children.length - 1;
  conversation.updated = now;
  return node;
}

// The nodes from the top to the end, along what is shown.
export function shownPath(conversation) {
  const path = [];
  let owner = conversation.root;
  while (owner.children.length > 0) {
    owner = conversation.nodes[owner.children[owner.current]];
    path.push(owner);
  }
  return path;
}

// The nodes from the top to `node`, whatever is shown.
export function pathTo(conversation, node) {
  const path = [];
  for (let at = node; at; at = at.parent === null ? null : conversation.nodes[at.parent]) path.push(at);
  return path.reverse();
}

// Which of how many versions `node` is: {index from 0, count}.
export function version(conversation, node) {
  const { children } = siblingsOwner(conversation, node);
  return { index: children.indexOf(node.id), count: children.length };
}

// Shows the version `step` further on; nothing happens beyond the ends.
export function showVersion(conversation, node, step) {
  const owner = siblingsOwner(conversation, node);
  const index = owner.children.indexOf(node.id) + step;
  if (index >= 0 && index < owner.children.length) owner.current = index;
}

export function removeNode(conversation, node) {
  const owner = siblingsOwner(conversation, node);
  owner.children = owner.children.filter((id) => id !== node.id);
  owner.current = Math.max(0, Math.min(owner.current, owner.children.length - 1));
  const doomed = [node.id];
  while (doomed.length > 0) {
    const id = doomed.pop();
    doomed.push(...conversation.nodes[id].children);
    delete conversation.nodes[id];
  }
}

// A title from the first question: one line of at most 60 characters.
export function titleFrom(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  const characters = Array.from(line);
  return characters.length <= 60 ? line : `${characters.slice(0, 59).join("").trimEnd()}…`;
}

// The messages of the API for what leads to `node`, itself included.
export function apiMessages(conversation, node, systemPrompt) {
  const messages = systemPrompt.trim() === "" ? [] : [{ role: "system", content: systemPrompt }];
  for (const { role, content, toolCalls, toolCallId } of pathTo(conversation, node)) {
    const message = { role, content };
    if (role === "assistant" && toolCalls.length > 0) {
      message.tool_calls = toolCalls.map(({ id, name, arguments: text }) => ({
        id, type: "function", function: { name, arguments: text },
      }));
    }
    if (role === "tool") message.tool_call_id = toolCallId;
    messages.push(message);
  }
  return messages;
}
