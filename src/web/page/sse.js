// Server-sent events, as https://html.spec.whatwg.org/multipage/server-sent-events.html reads them,
// from text that comes in pieces of any size.

const MAX_PENDING = 16 * 1024 * 1024;

export class SseParser {
  #pending = "";
  #data = [];
  #first = true;

  // The data of each event that `text` completes.
  push(text) {
    if (this.#first && text.length > 0) {
      this.#first = false;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    this.#pending += text;
    const events = [];
    let start = 0;
    for (;;) {
      const end = this.#lineEnd(start);
      if (end < 0) break;
      this.#line(this.#pending.slice(start, end), events);
      start = end + (this.#pending.startsWith("\r\n", end) ? 2 : 1);
    }
    this.#pending = this.#pending.slice(start);
    if (this.#pending.length > MAX_PENDING) throw new Error("The server sent a line of more than 16 MB.");
    return events;
  }

  // Where the line that begins at `start` ends; -1 if that is not known yet: a carriage return at the
  // end may be half of a line ending.
  #lineEnd(start) {
    const feed = this.#pending.indexOf("\n", start);
    const carriage = this.#pending.indexOf("\r", start);
    if (carriage < 0 || (feed >= 0 && feed < carriage)) return feed;
    return carriage + 1 < this.#pending.length ? carriage : -1;
  }

  #line(line, events) {
    if (line === "") {
      if (this.#data.length > 0) events.push(this.#data.join("\n"));
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    if (field !== "data") return;
    const value = colon < 0 ? "" : line.slice(colon + 1);
    this.#data.push(value.startsWith(" ") ? value.slice(1) : value);
  }
}
