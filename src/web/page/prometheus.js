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

// How many tokens a draft brought on average, of those since the look before; where there were none, of
// all since the start; null where nothing was ever drafted.
function meanAcceptance(now, before) {
  const counts = (sums) => ["spec_decode_num_drafts_total", "spec_decode_num_accepted_tokens_total"]
    .map((name) => metric(sums, name) ?? 0);
  const [drafts, accepted] = counts(now.sums);
  const [draftsBefore, acceptedBefore] = before ? counts(before.sums) : [0, 0];
  if (drafts > draftsBefore && accepted >= acceptedBefore) {
    return 1 + (accepted - acceptedBefore) / (drafts - draftsBefore);
  }
  return drafts > 0 ? 1 + accepted / drafts : null;
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
    accepted: meanAcceptance(now, before),
  };
}
