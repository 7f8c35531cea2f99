// The settings as a form. What is valid counts at once; what is not is marked and changes nothing.

import { h } from "./dom.js";
import { DEFAULTS, FIELDS, problem } from "./settings.js";

export class SettingsPanel {
  #settings;
  #changed;
  #controls = new Map();
  #models = h("select", { id: "setting-model" });

  // `changed(settings)` is called with each new valid state.
  constructor(form, settings, changed) {
    this.#settings = settings;
    this.#changed = changed;
    const system = h("textarea", { id: "setting-system", rows: 4, placeholder: "None" });
    const thinking = h("select", { id: "setting-thinking" },
      h("option", { value: "" }, "The model's default"), h("option", { value: "on" }, "On"), h("option", { value: "off" }, "Off"));
    this.#simple("model", this.#models, "change");
    this.#simple("system", system, "input");
    this.#simple("thinking", thinking, "change");
    const field = (name) => this.#field(FIELDS.find((each) => each.name === name));
    form.append(
      labelled("setting-model", "Model", this.#models),
      labelled("setting-system", "System prompt", system),
      labelled("setting-thinking", "Thinking", thinking, "For models that can reason before they answer."),
      h("div", { class: "pairs" }, ["temperature", "max_tokens", "top_p", "top_k", "min_p", "seed"].map(field)),
      h("div", { class: "pairs" }, ["repetition_penalty", "presence_penalty", "frequency_penalty"].map(field)),
      field("stop"), field("tools"), field("json_schema"));
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  #simple(name, control, event) {
    control.value = this.#settings[name];
    control.addEventListener(event, () => this.#set(name, control.value));
    this.#controls.set(name, { control, check: () => {} });
  }

  #field(field) {
    const id = `setting-${field.name}`;
    const many = ["lines", "tools", "schema"].includes(field.kind);
    const control = many
      ? h("textarea", { id, rows: field.kind === "lines" ? 2 : 3, spellcheck: "false", placeholder: "None" })
      : h("input", { id, type: "text", inputmode: "decimal", autocomplete: "off", placeholder: "default" });
    const hint = h("p", { class: "hint", id: `${id}-hint` }, field.hint);
    const error = h("p", { class: "error", id: `${id}-error`, role: "alert" });
    control.setAttribute("aria-describedby", `${hint.id} ${error.id}`);
    control.value = this.#settings[field.name];
    const check = () => {
      const wrong = problem(field, control.value);
      error.textContent = wrong ?? "";
      control.setAttribute("aria-invalid", String(wrong !== null));
      return wrong === null;
    };
    control.addEventListener("input", () => {
      if (check()) this.#set(field.name, control.value);
    });
    this.#controls.set(field.name, { control, check });
    return h("div", { class: "field" }, h("label", { for: id }, field.label), control, error, hint);
  }

  #set(name, value) {
    this.#settings = { ...this.#settings, [name]: value };
    this.#changed(this.#settings);
  }

  // The models that the server has; `chosen` is selected, or the first where it is not among them.
  // Adapters stand behind the models, under the name of the one that they are for.
  setModels(models, chosen) {
    const option = ({ id }) => h("option", { value: id }, id);
    const parents = [...new Set(models.map(({ parent }) => parent))].filter((parent) => parent !== null);
    this.#models.replaceChildren(
      ...models.filter(({ parent }) => parent === null).map(option),
      ...parents.map((name) => h("optgroup", { label: `Adapters of ${name}` },
        models.filter(({ parent }) => parent === name).map(option))));
    this.#models.value = models.some(({ id }) => id === chosen) ? chosen : (models[0]?.id ?? "");
  }

  // Everything but the model back to what the server and model choose.
  reset() {
    this.#settings = { ...DEFAULTS, model: this.#settings.model };
    for (const [name, { control, check }] of this.#controls) {
      if (name !== "model") control.value = this.#settings[name];
      check();
    }
    this.#changed(this.#settings);
  }
}

function labelled(id, label, control, hint) {
  const text = hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (text) control.setAttribute("aria-describedby", text.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, text);
}
