// Conversations, kept in this browser's IndexedDB; and small preferences in its localStorage, which a
// browser may refuse (private windows, full disks): preferences then last as long as the page.

const DATABASE = "quire";
const CONVERSATIONS = "conversations";

function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class ConversationStore {
  #database;
  #others = new BroadcastChannel("quire");  // the same page in other tabs

  // Throws where the browser keeps nothing for this page.
  static async open() {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(CONVERSATIONS, { keyPath: "id" });
    const store = new ConversationStore();
    store.#database = await finished(request);
    return store;
  }

  #conversations(mode) {
    return this.#database.transaction(CONVERSATIONS, mode).objectStore(CONVERSATIONS);
  }

  // All, the last changed first.
  async all() {
    const all = await finished(this.#conversations("readonly").getAll());
    return all.sort((a, b) => b.updated - a.updated);
  }

  async get(id) {
    return finished(this.#conversations("readonly").get(id));
  }

  async put(conversation) {
    await finished(this.#conversations("readwrite").put(conversation));
    this.#others.postMessage(conversation.id);
  }

  async remove(id) {
    await finished(this.#conversations("readwrite").delete(id));
    this.#others.postMessage(id);
  }

  // Calls back with the id of each conversation that another tab changes.
  watch(changed) {
    this.#others.onmessage = ({ data }) => changed(data);
  }
}

// The same without a place to keep anything.
export class MemoryStore {
  #all = new Map();

  async all() {
    return [...this.#all.values()].sort((a, b) => b.updated - a.updated);
  }

  async put(conversation) {
    this.#all.set(conversation.id, conversation);
  }

  async remove(id) {
    this.#all.delete(id);
  }

  watch() {}
}

const unsaved = new Map();

export const preferences = {
  get(name) {
    try {
      return localStorage.getItem(`quire.${name}`) ?? unsaved.get(name) ?? null;
    } catch {
      return unsaved.get(name) ?? null;
    }
  },
  set(name, value) {
    unsaved.set(name, value);
    try {
      localStorage.setItem(`quire.${name}`, value);
    } catch {
      // Kept for this page alone.
    }
  },
  remove(name) {
    unsaved.delete(name);
    try {
      localStorage.removeItem(`quire.${name}`);
    } catch {
      // Nothing was kept.
    }
  },
};
