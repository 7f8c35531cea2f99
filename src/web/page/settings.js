// The settings: what can be set, what is valid, and what of it a request carries. A setting that is
// empty is left to the server, which takes the model's own default.

const whole = (min, max) => ({ kind: "whole", min, max });
const real = (min, max, step, open = false) => ({ kind: "real", min, max, step, open });

// `open`: the lower end itself is not allowed. The ranges are those of the server.
export const FIELDS = [
  { name: "temperature", label: "Temperature", ...real(0, 100, 0.1),
    hint: "0 always takes the likeliest token; more is more varied." },
  { name: "top_p", label: "Top p", ...real(0, 1, 0.05, true), hint: "Only the likeliest tokens that reach this probability together." },
  { name: "top_k", label: "Top k", ...whole(-1, 1000000), hint: "Only so many of the likeliest tokens; 0 is all." },
  { name: "min_p", label: "Min p", ...real(0, 1, 0.05), hint: "Only tokens with this share of the likeliest one's probability." },
  { name: "max_tokens", label: "Longest answer", ...whole(1, 100000000), hint: "In tokens." },
  { name: "seed", label: "Seed", ...whole(0, Number.MAX_SAFE_INTEGER), hint: "The same seed gives the same answer." },
  { name: "repetition_penalty", label: "Repetition penalty", ...real(0, 10, 0.05, true), hint: "Above 1 avoids what was in the question or the answer." },
  { name: "presence_penalty", label: "Presence penalty", ...real(-2, 2, 0.1), hint: "Above 0 avoids tokens that were in the answer." },
  { name: "frequency_penalty", label: "Frequency penalty", ...real(-2, 2, 0.1), hint: "The same, for each time that they were." },
  { name: "stop", label: "Stop texts", kind: "lines", max: 64, hint: "The answer ends before any of these; one a line. \\n is a new line, \\t a tab." },
  { name: "tools", label: "Tools", kind: "tools", hint: "A JSON list of tools, as in OpenAI's API." },
  { name: "json_schema", label: "JSON schema", kind: "schema", hint: "The answer is JSON that this schema describes." },
];

export const DEFAULTS = Object.freeze({
  model: "", system: "", thinking: "", ...Object.fromEntries(FIELDS.map(({ name }) => [name, ""])),
});

// What is wrong with a field's text, or null.
export function problem(field, text) {
  if (text.trim() === "") return null;
  if (field.kind === "tools") return toolsProblem(text);
  if (field.kind === "schema") return schemaProblem(text);
  if (field.kind === "lines") {
    const lines = stopTexts(text);
    if (lines.length > field.max) return `At most ${field.max} lines.`;
    const bytes = (line) => new TextEncoder().encode(line).length;
    return lines.some((line) => bytes(line) > 4096) ? "At most 4096 bytes a line." : null;
  }
  const value = Number(text);
  const { min, max } = field;
  if (!Number.isFinite(value) || (field.kind === "whole" && !Number.isInteger(value))) {
    return field.kind === "whole" ? "A whole number is needed." : "A number is needed.";
  }
  if (value > max || value < min || (field.open && value === min)) {
    return field.open ? `Above ${min}, at most ${max}.` : `From ${min} to ${max}.`;
  }
  return null;
}

function schemaProblem(text) {
  try {
    const schema = JSON.parse(text);
    const right = typeof schema === "object" && schema !== null && !Array.isArray(schema);
    return right ? null : "An object is needed: {\"type\": \"object\", …}";
  } catch (error) {
    return `Not JSON: ${error.message}`;
  }
}

function toolsProblem(text) {
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    return `Not JSON: ${error.message}`;
  }
  if (!Array.isArray(tools)) return "A list is needed: [{\"type\": \"function\", …}]";
  const bad = tools.findIndex((tool) => tool?.type !== "function" || typeof tool.function?.name !== "string");
  return bad < 0 ? null : `Tool ${bad + 1} is not {"type": "function", "function": {"name": …}}.`;
}

function stopTexts(text) {
  return text.split("\n").filter((line) => line !== "")
    .map((line) => line.replace(/\\([nt\\])/g, (_, letter) => ({ n: "\n", t: "\t", "\\": "\\" })[letter]));
}

function fieldValue(field, text) {
  if (field.kind === "lines") return stopTexts(text);
  return ["tools", "schema"].includes(field.kind) ? JSON.parse(text) : Number(text);
}

// The fields of a chat completion request that the settings ask for. Invalid ones are left out: the
// panel shows what is wrong with them and keeps them from being saved.
export function requestFields(settings) {
  const result = {};
  for (const field of FIELDS) {
    const text = settings[field.name];
    if (text.trim() !== "" && problem(field, text) === null) result[field.name] = fieldValue(field, text);
  }
  if (result.tools?.length === 0) delete result.tools;
  const { json_schema: schema, ...fields } = result;
  if (schema) {
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  }
  if (settings.thinking !== "") fields.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  return fields;
}

// Settings from what a browser kept, which may be from another version or damaged.
export function readSettings(json) {
  const settings = { ...DEFAULTS };
  let kept = null;
  try {
    kept = JSON.parse(json ?? "null");
  } catch {
    return settings;
  }
  for (const name of Object.keys(DEFAULTS)) {
    if (typeof kept?.[name] === "string") settings[name] = kept[name];
  }
  for (const field of FIELDS) {
    if (problem(field, settings[field.name]) !== null) settings[field.name] = "";
  }
  if (!["", "on", "off"].includes(settings.thinking)) settings.thinking = "";
  return settings;
}
