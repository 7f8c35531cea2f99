#!/usr/bin/env python3
"""Writes the tables of docs/performance.md and README.md and the plots in docs/images from measured figures.

    scripts/plot_performance.py                  from docs/performance/h200*.json
    scripts/plot_performance.py FILE...          from these files of `scripts/measure_gpu.py --json`
    scripts/plot_performance.py --tables-only    without the plots, which need matplotlib
    scripts/plot_performance.py --check          writes nothing; exits with 1 where a table is not what it would write

A row that several files have is taken from the last.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCES = ROOT / "docs" / "performance" / "references.json"
IMAGES = ROOT / "docs" / "images"
PEERS = ("vLLM", "nano-vllm")
ENGINES = ("quire", *PEERS)
# What the README shows: rows with figures of all three engines, and what it calls them.
HIGHLIGHTS = {("bench.py", "Qwen3-0.6B", 1): "256 sequences", ("1 stream", "Qwen3-0.6B", 1): "one stream",
              ("64 streams", "Qwen3-0.6B", 1): "64 streams"}
STREAMS = re.compile(r"(\d+) streams?$")

# The plots' ink and grid are set by the reader's colour scheme; the engines' colours suit both.
INK, GRID = "#1f2328", "#d1d9e0"
STYLE = ("<style>svg{--ink:#1f2328;--grid:#d1d9e0}"
         "@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--grid:#3d444d}}</style>")
COLOURS = {"quire": "#1f77d0", "vLLM": "#e08a1e", "nano-vllm": "#8b949e"}


class Figures:
    """The rows of several files by (name, model, GPUs), and what they were measured on."""

    def __init__(self, files):
        self.rows, self.sources = {}, []
        for file in files:
            data = json.loads(file.read_text(encoding="utf-8"))
            source = "commit {commit}, {device}, driver {driver}, {date}".format(**data)
            if source not in self.sources:
                self.sources.append(source)
            self.rows |= {(row["name"], row["model"], row["gpus"]): row for row in data["rows"]}

    def figure(self, key, engine):
        row = self.rows.get(key, {})
        return row.get("figure") if engine == "quire" else row.get("peers", {}).get(engine)


def number(value):
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def label(key):
    name, model, gpus = key
    return f"{model}, {name}" + (f", {gpus} GPUs" if gpus > 1 else "")


def compared(row, peer):
    """How many times as fast as the peer: "1.13 x"; of seconds, fewer are faster."""
    other = row.get("peers", {}).get(peer)
    if other is None:
        return ""
    ratio = other / row["figure"] if row["unit"] == "s" else row["figure"] / other
    return f"{ratio:.2f} x" if ratio < 10 else f"{ratio:.0f} x"


def performance_table(figures):
    lines = ["| work | quire | limit | share | goal | vLLM | nano-vllm | against vLLM |",
             "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for key, row in figures.rows.items():
        if STREAMS.match(key[0]) and "peers" not in row:
            continue  # it is only in the plot over the number of streams
        unit = " s" if row["unit"] == "s" else ""
        share = f"{100 * row['figure'] / row['limit']:.0f} %" if "limit" in row else ""
        peers = [number(figures.figure(key, peer)) for peer in PEERS]
        cells = [label(key), number(row["figure"]) + unit, number(row.get("limit")), share, number(row.get("goal")),
                 *peers, compared(row, "vLLM")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + ["", "Measured at " + "; ".join(figures.sources) + "."]


def readme_table(figures):
    peers = json.loads(REFERENCES.read_text(encoding="utf-8"))["peers"]
    versions = [f"{peer} {peers[peer]['version']}" for peer in PEERS]
    lines = ["| tokens/s on one H200 | quire | " + " | ".join(versions) + " | quire against vLLM |", "|---|--:|--:|--:|--:|"]
    for key, name in HIGHLIGHTS.items():
        cells = [f"{key[1]}, {name}", *(number(figures.figure(key, engine)) for engine in ENGINES),
                 compared(figures.rows[key], "vLLM")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def with_table(text, lines):
    """The page with its generated part replaced."""
    pattern = re.compile(r"(<!-- scripts/plot_performance\.py writes this -->\n).*?(<!-- to here -->)", re.DOTALL)
    replaced, count = pattern.subn(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], text)
    if count != 1:
        raise SystemExit(f"expected one generated part in the page, found {count}")
    return replaced


def save(figure, name):
    """An SVG without a date, whose ink and grid follow the reader's colour scheme."""
    path = IMAGES / name
    figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
    text = path.read_text(encoding="utf-8").replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    path.write_text(re.sub(r"(<svg [^>]*>)", lambda match: match[1] + STYLE, text, count=1), encoding="utf-8")


def set_style(pyplot):
    pyplot.rcParams.update({
        "svg.hashsalt": "quire", "font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID,
        "xtick.color": INK, "ytick.color": INK, "grid.color": GRID, "axes.titlecolor": INK, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "figure.facecolor": "none"})


def plot_shares(pyplot, figures):
    """What part of the machine's limit each row reaches; dots for the peers, a stroke for the goal."""
    keys = [key for key, row in figures.rows.items() if "limit" in row][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.42 * len(keys) + 0.9))
    percent = lambda key, value: 100 * value / figures.rows[key]["limit"]
    axes.barh(range(len(keys)), [percent(key, figures.rows[key]["figure"]) for key in keys], height=0.6,
              color=COLOURS["quire"], label="quire")
    for place, key in enumerate(keys):
        shares = {peer: percent(key, figures.figure(key, peer)) for peer in PEERS if figures.figure(key, peer)}
        for peer, share in shares.items():
            axes.plot(share, place, "o" if peer == "vLLM" else "D", color=COLOURS[peer], markersize=7,
                      markeredgecolor="white", markeredgewidth=0.8)
        if "goal" in figures.rows[key]:
            axes.vlines(percent(key, figures.rows[key]["goal"]), place - 0.4, place + 0.4, color=INK, linewidth=1.5)
    for peer, marker in zip(PEERS, "oD"):
        axes.plot([], [], marker, color=COLOURS[peer], label=peer)
    axes.plot([], [], "|", color=INK, markersize=12, markeredgewidth=1.5, label="goal")
    axes.set_yticks(range(len(keys)), [label(key) for key in keys])
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of what memory and arithmetic allow, %")
    axes.grid(axis="x")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[-1:] + handles[:-1], names[-1:] + names[:-1], loc="lower center", bbox_to_anchor=(0.4, 1.0),
                ncols=4)
    save(figure, "performance-limits.svg")


def plot_streams(pyplot, figures):
    """Decoded tokens/s against the number of streams, a panel a model."""
    models = ("Qwen3-0.6B", "Qwen3-8B")
    figure, panels = pyplot.subplots(1, len(models), figsize=(8, 3.6))
    for axes, model in zip(panels, models):
        counts = {int(match[1]): key for key in figures.rows
                  if (match := STREAMS.match(key[0])) and key[1:] == (model, 1)}
        for engine in reversed(ENGINES):
            points = [(count, figures.figure(key, engine)) for count, key in sorted(counts.items())
                      if figures.figure(key, engine)]
            axes.plot(*zip(*points), "o-", color=COLOURS[engine], label=engine, linewidth=2)
            for count, value in points if engine == "quire" else ():
                axes.annotate(number(value), (count, value), textcoords="offset points", xytext=(0, 7), ha="center",
                              fontsize=8)
        axes.set_xscale("log", base=4)
        axes.set_yscale("log")
        axes.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        axes.minorticks_off()
        axes.set_xlim(0.6, 400)
        axes.margins(y=0.15)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_title(model)
        axes.set_xlabel("streams")
        axes.grid(axis="y")
    panels[0].set_ylabel("decoded tokens/s")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.06))
    figure.tight_layout()
    save(figure, "performance-streams.svg")


def plot_highlights(pyplot, figures):
    """The README's: three rows, a bar an engine."""
    figure, panels = pyplot.subplots(1, len(HIGHLIGHTS), figsize=(8, 2.1))
    for axes, (key, name) in zip(panels, HIGHLIGHTS.items()):
        values = [figures.figure(key, engine) for engine in ENGINES]
        bars = axes.barh(ENGINES, values, color=[COLOURS[engine] for engine in ENGINES], height=0.65)
        axes.bar_label(bars, [number(value) for value in values], padding=3, fontsize=9)
        axes.set_xlim(0, 1.3 * max(values))
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(left=False, labelleft=axes is panels[0])
        axes.set_title(name, fontsize=10)
    figure.suptitle("Qwen3-0.6B on one H200, tokens/s", color=INK, fontsize=10, y=0.97)
    figure.tight_layout()
    save(figure, "comparison.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE", help="figures [docs/performance/h200*.json]")
    parser.add_argument("--tables-only", action="store_true", help="no plots")
    parser.add_argument("--check", action="store_true", help="whether the tables are what this writes")
    args = parser.parse_args()
    figures = Figures(args.files or sorted(REFERENCES.parent.glob("h200*.json")))
    stale = []
    for page, table in ((ROOT / "docs" / "performance.md", performance_table), (ROOT / "README.md", readme_table)):
        text = page.read_text(encoding="utf-8")
        written = with_table(text, table(figures))
        if args.check and written != text:
            stale.append(page.name)
        elif not args.check:
            page.write_text(written, encoding="utf-8")
    if stale:
        raise SystemExit(f"not what scripts/plot_performance.py writes: {', '.join(stale)}")
    if not args.check and not args.tables_only:
        import matplotlib  # only plots need it
        matplotlib.use("svg")
        from matplotlib import pyplot
        set_style(pyplot)
        for plot in (plot_shares, plot_streams, plot_highlights):
            plot(pyplot, figures)


if __name__ == "__main__":
    sys.exit(main())
