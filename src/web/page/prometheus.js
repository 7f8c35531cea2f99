// Reads Prometheus' text format as far as the live view needs it.

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(\S+)/;

// The sum over all labels of every metric: a Map from name to number.
export function parseMetrics(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : SAMPLE.exec(line);
    if (!match) continue;
    const value = Number(match[2]);
    if (Number.isFinite(value)) sums.set(match[1], (sums.get(match[1]) ?? 0) + value);
  }
  return sums;
}

// The value of the metric with that name behind any prefix ("quire:", "vllm:"), or null.
export function metric(sums, name) {
  for (const [key, value] of sums) {
    if (key === name || key.endsWith(`:${name}`)) return value;
  }
  return null;
}

// What the engine does, from two looks at its metrics: {time (ms), sums}. A counter that fell was
// reset by a restart.
export function engineSample(now, before) {
  const rate = (name) => {
    const current = metric(now.sums, name);
    const last = before ? metric(before.sums, name) : null;
    if (current === null || last === null || current < last || now.time <= before.time) return null;
    return ((current - last) * 1000) / (now.time - before.time);
  };
  return {
    time: now.time,
    running: metric(now.sums, "num_requests_running"),
    waiting: metric(now.sums, "num_requests_waiting"),
    kvUsage: metric(now.sums, "kv_cache_usage_perc"),
    generated: rate("generation_tokens_total"),
    prefilled: rate("prompt_tokens_total"),
  };
}
