// The live view of the engine: figures and a plot of the last minutes from /metrics, asked for only
// while the view is open and the page visible.

/* global Chart */
import { h } from "./dom.js";
import { engineSample, parseMetrics } from "./prometheus.js";

const PERIOD_MS = 2000;
const KEPT_MS = 5 * 60 * 1000;
const MIN_SHOWN_MS = 60 * 1000;
const CHART = "/page/lib/chart.js";

// A tick of the time axis, in minutes up to now.
function ago(minutes) {
  if (minutes === 0) return "now";
  return Number.isInteger(minutes) ? `${-minutes} min ago` : `${Math.round(-minutes * 60)} s ago`;
}

const count = (value) => (value === null ? "–" : String(Math.round(value)));
const rate = (value) => (value === null ? "–" : value.toFixed(value < 99.5 ? 1 : 0));

export class EngineView {
  #api;
  #panel;
  #figures;
  #status = h("p", { class: "engine-status", role: "status" });
  #canvas = h("canvas", { role: "img", "aria-label": "Tokens a second over the last five minutes" });
  #chart = null;
  #samples = [];
  #last = null;
  #timer = null;
  #asking = false;

  constructor(api, panel) {
    this.#api = api;
    this.#panel = panel;
    const figure = (name, label) => [name, h("b", { "data-figure": name }, "–"), label];
    const figures = [figure("running", "running"), figure("waiting", "waiting"), figure("kv", "of KV cache"),
      figure("generated", "generated tokens/s"), figure("prefilled", "prompt tokens/s"),
      figure("accepted", "tokens a draft")];
    this.#figures = Object.fromEntries(figures.map(([name, element]) => [name, element]));
    panel.append(
      h("ul", { class: "figures" }, figures.map(([, value, label]) => h("li", {}, value, h("span", {}, label)))),
      h("div", { class: "plot" }, this.#canvas), this.#status);
    this.#figures.accepted.parentElement.hidden = true; // until something was drafted
    document.addEventListener("visibilitychange", () => this.#schedule());
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)"]) {
      matchMedia(query).addEventListener("change", () => this.restyle());
    }
  }

  async toggle(open) {
    this.#panel.hidden = !open;
    this.#last = null;
    if (open && this.#chart === null) {
      await loadScript(CHART);
      this.#draw();
    }
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (!this.#panel.hidden && !document.hidden) this.#ask();
  }

  async #ask() {
    if (this.#asking) return;
    this.#asking = true;
    try {
      const now = { time: Date.now(), sums: parseMetrics(await this.#api.metrics()) };
      this.#show(engineSample(now, this.#last));
      this.#last = now;
      this.#status.textContent = "";
    } catch (error) {
      this.#status.textContent = `No figures: ${error.message}`;
      this.#last = null;
    } finally {
      this.#asking = false;
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#schedule(), PERIOD_MS);
  }

  #show(sample) {
    this.#figures.running.textContent = count(sample.running);
    this.#figures.waiting.textContent = count(sample.waiting);
    this.#figures.kv.textContent = sample.kvUsage === null ? "–" : `${(100 * sample.kvUsage).toFixed(1)} %`;
    this.#figures.generated.textContent = rate(sample.generated);
    this.#figures.prefilled.textContent = rate(sample.prefilled);
    this.#figures.accepted.textContent = sample.accepted === null ? "–" : sample.accepted.toFixed(2);
    this.#figures.accepted.parentElement.hidden = sample.accepted === null;
    if (sample.generated === null) return;
    this.#samples.push(sample);
    while (this.#samples[0].time < sample.time - KEPT_MS) this.#samples.shift();
    this.#plot();
  }

  #plot() {
    if (this.#chart === null) return;
    const end = this.#samples.at(-1).time;
    const minutes = (name) => this.#samples.map((sample) => ({ x: (sample.time - end) / 60000, y: sample[name] ?? 0 }));
    this.#chart.data.datasets[0].data = minutes("generated");
    const from = Math.max(MIN_SHOWN_MS, end - this.#samples[0].time) / 60000;
    Object.assign(this.#chart.options.scales.x, { min: -from });
    this.#chart.options.scales.x.ticks.stepSize = from > 2 ? 1 : 0.25;
    this.#chart.update("none");
  }

  #draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const font = { family: style.fontFamily, size: 11 };
    this.#chart = new Chart(this.#canvas, {
      type: "line",
      data: { datasets: [{ label: "generated tokens/s", data: [], borderColor: colour("--accent"), borderWidth: 1.5,
        backgroundColor: colour("--accent-wash"), fill: "origin", pointRadius: 0, tension: 0.25 }] },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
        interaction: { intersect: false, mode: "index" },
        plugins: { legend: { display: false }, tooltip: { displayColors: false,
          callbacks: { title: () => "", label: ({ parsed }) => `${parsed.y.toFixed(1)} tokens/s` } } },
        scales: {
          x: { type: "linear", min: -5, max: 0, grid: { display: false }, border: { color: colour("--rule") },
            ticks: { color: colour("--muted"), font, stepSize: 1, maxRotation: 0, includeBounds: false, callback: ago } },
          y: { min: 0, suggestedMax: 10, grid: { color: colour("--rule") },
            ticks: { color: colour("--muted"), font, maxTicksLimit: 4 } },
        },
      },
    });
    if (this.#samples.length > 0) this.#plot();
  }

  // The plot's colours are those of the page.
  restyle() {
    if (this.#chart === null) return;
    this.#chart.destroy();
    this.#draw();
  }
}

const loading = new Map();

function loadScript(src) {
  if (!loading.has(src)) {
    loading.set(src, new Promise((resolve, reject) => {
      const failed = () => {
        loading.delete(src);
        reject(new Error(`${src} could not be loaded.`));
      };
      document.head.append(h("script", { src, onload: resolve, onerror: failed }));
    }));
  }
  return loading.get(src);
}
