// The panels of a group on one time axis, drawn by Bokeh's own JavaScript, which is loaded when a group is opened.
import { $ } from "/page/dom.js";
import { ticks } from "/page/format.js";
import { heatLayer } from "/page/heatmap.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const LEFT = 58, RIGHT = 14;
/** Large screens have a larger root font: what is drawn grows with it. */
const large = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
const HEIGHTS = { arrivals: 280, members: 150, delay: 110, lag: 110, heat: 220 };

let loading = null;
/** Loads Bokeh once; false when the page extra is not installed. */
export function bokeh() {
  const script = (src) => new Promise((done, failed) => {
    const made = Object.assign(document.createElement("script"), { src, async: false, onload: done, onerror: failed });
    document.head.append(made);
  });
  loading ??= Promise.all(["/page/bokeh.js", "/page/bokeh-api.js"].map(script)).then(() => true, () => false);
  return loading;
}

export const NONE = { x: [], y: [] };
const BOX = ["left", "right", "bottom", "top"];
const COLUMNS = {
  windows: [...BOX, "name", "y", "at"], arrivalsGaps: BOX, membersGaps: BOX, delayGaps: BOX, lagGaps: BOX,
  band: ["x", "low", "q90", "q95", "median"], truth: ["x", "y"], capacity: ["x", "y"], ahead: ["x", "y"], target: ["x", "y"],
  expected: ["x", "y"], expectedHigh: ["x", "y"], working: ["x", "y"], requested: ["x", "y"], planned: ["x", "y"],
  reactive: ["x", "y"], whatif: ["x", "y"], delay: ["x", "y"], lag: ["x", "y"], slo: ["x", "y"],
};

export class Stack {
  constructor(zone, moved) {
    this.zone = zone;
    this.moved = moved;
    this.sources = Object.fromEntries(Object.entries(COLUMNS).map(([name, columns]) =>
      [name, new Bokeh.ColumnDataSource({ data: Object.fromEntries(columns.map((c) => [c, []])) })]));
    this.range = new Bokeh.Range1d({ start: 0, end: 1 });
    this.data = {};
    this.keys = {};
    this.figures = {};
    for (const name of Object.keys(HEIGHTS)) this.figures[name] = this.figure(name);
    $("stack").classList.toggle("drawn-dark", parseInt(css("--bg").slice(1, 3), 16) < 128);
    this.layers();
    this.nows = Object.values(this.figures).map((f) => {
      const span = new Bokeh.Span({ dimension: "height", location: 0, line_color: css("--vermilion"), line_width: 1 });
      f.add_layout(span);
      return span;
    });
    this.range.connect(this.range.change, () => this.later());
  }

  figure(name) {
    const text = css("--quiet"), line = css("--line"), by = large();
    const narrow = matchMedia("(max-width: 720px)").matches;
    const made = Bokeh.Plotting.figure({
      height: HEIGHTS[name] * by, sizing_mode: "stretch_width", x_range: this.range, y_range: new Bokeh.Range1d({ start: 0, end: 1 }),
      min_border_left: LEFT * by, min_border_right: RIGHT * by, min_border_top: 6, min_border_bottom: 4, toolbar_location: null,
      tools: narrow ? "" : "xpan", output_backend: "canvas",
    });
    made.background_fill_color = made.border_fill_color = css("--panel");
    made.outline_line_color = null;
    for (const axis of [...made.below, ...made.left]) {
      axis.major_label_text_color = text;
      axis.major_label_text_font_size = `${11 * by}px`;
      axis.major_label_text_font = "system-ui, sans-serif";
      axis.axis_line_color = line;
      axis.major_tick_line_color = line;
      axis.major_tick_in = 0;
      axis.minor_tick_line_color = null;
    }
    made.below[0].ticker = new Bokeh.FixedTicker({ ticks: [] });
    made.left[0].axis_line_color = null;
    if (name !== "heat") {
      made.left[0].ticker = new Bokeh.BasicTicker({ desired_num_ticks: HEIGHTS[name] > 200 ? 6 : 3, num_minor_ticks: 0 });
      for (const grid of made.center) if (grid.dimension === 1) grid.ticker = made.left[0].ticker;
      made.left[0].formatter = new Bokeh.NumeralTickFormatter({ format: "0.[00]a" });
    }
    for (const grid of made.center) if ("grid_line_color" in grid) {
      grid.grid_line_color = line;
      grid.grid_line_alpha = grid.dimension === 0 || name === "heat" ? 0 : 0.7;
    }
    return made;
  }

  layers() {
    const S = this.sources, { arrivals, members, delay, lag, heat } = this.figures;
    const by = large();
    const at = (name, more) => ({ x: { field: "x" }, y: { field: "y" }, source: S[name], ...more, line_width: more.line_width * by });
    const box = (name, more) => ({ left: { field: "left" }, right: { field: "right" }, bottom: { field: "bottom" },
      top: { field: "top" }, source: S[name], line_color: null, ...more });
    for (const f of [arrivals, members]) f.quad(box("windows", { fill_color: css("--window"), fill_alpha: 1 }));
    for (const [name, f] of Object.entries({ arrivals, members, delay, lag })) {
      f.quad(box(`${name}Gaps`, { fill_color: css("--panel"), hatch_pattern: "right_diagonal_line", hatch_color: css("--grey"),
        hatch_alpha: 0.55, hatch_weight: 0.7, hatch_scale: 8 }));
    }
    const area = (low, high, colour) => arrivals.varea({ x: { field: "x" }, y1: { field: low }, y2: { field: high }, source: S.band,
      fill_color: css(colour), fill_alpha: 1 });
    area("low", "q95", "--band95");
    area("low", "q90", "--band90");
    arrivals.step(at("capacity", { line_color: css("--grey"), line_width: 1.5, mode: "after" }));
    arrivals.step(at("ahead", { line_color: css("--grey"), line_width: 1.5, line_dash: [4, 4], mode: "after" }));
    arrivals.step(at("target", { line_color: css("--grey"), line_width: 1, line_dash: [1, 3], mode: "after" }));
    arrivals.line(at("expectedHigh", { line_color: css("--amber"), line_width: 0.8, line_dash: [2, 3] }));
    arrivals.line(at("expected", { line_color: css("--amber"), line_width: 1.4 }));
    arrivals.line({ x: { field: "x" }, y: { field: "median" }, source: S.band, line_color: css("--blue"), line_width: 1.2 * by });
    arrivals.line(at("truth", { line_color: css("--text"), line_width: 1.3, line_join: "round" }));
    arrivals.text({ x: { field: "at" }, y: { field: "y" }, text: { field: "name" }, source: S.windows, x_offset: 4, y_offset: 2,
      text_baseline: "top", text_font_size: `${11 * large()}px`, text_font: "system-ui, sans-serif", text_color: css("--amber") });
    members.step(at("reactive", { line_color: css("--grey"), line_width: 1, mode: "after" }));
    members.step(at("requested", { line_color: css("--amber"), line_width: 1.2, mode: "after" }));
    members.step(at("planned", { line_color: css("--blue"), line_width: 2, line_dash: [6, 4], mode: "after" }));
    members.step(at("whatif", { line_color: css("--vermilion"), line_width: 2, line_dash: [2, 3], mode: "after" }));
    members.step(at("working", { line_color: css("--text"), line_width: 2, mode: "after" }));
    delay.line(at("slo", { line_color: css("--vermilion"), line_width: 1, line_dash: [6, 4] }));
    delay.line(at("delay", { line_color: css("--text"), line_width: 1.3 }));
    lag.line(at("lag", { line_color: css("--text"), line_width: 1.3 }));
    this.heat = heatLayer(heat, css);
  }

  async show() {
    const { add_document_standalone } = Bokeh.require("embed/standalone"), names = Object.keys(this.figures), made = new Bokeh.Document();
    for (const name of names) { $(`chart-${name}`).replaceChildren(); made.add_root(this.figures[name]); }
    const views = await add_document_standalone(made, document.body, names.map((name) => $(`chart-${name}`)));
    this.view = views.get(this.figures.arrivals);
    this.heatView = views.get(this.figures.heat);
    return this;
  }

  /** Left and right edge of the frames, in pixels from the left of a chart. */
  get frame() {
    const box = this.view?.frame?.bbox;
    return box ? [box.left, box.right] : [LEFT, $("chart-arrivals").clientWidth - RIGHT];
  }

  /** Number of the heat map's row at a height in pixels from the top of its chart; null beside it. */
  rowAt(y) {
    const box = this.heatView?.frame?.bbox, count = this.rows?.groups.length ?? 0;
    if (!box || !count || y < box.top || y >= box.bottom) return null;
    return Math.floor((count * (y - box.top)) / (box.bottom - box.top));
  }

  set(series) {
    for (const [name, columns] of Object.entries(series)) {
      this.data[name] = columns;
      if (this.sources[name]) this.sources[name].data = columns;
    }
    this.scale();
  }

  setNow(now) { this.now = now; for (const span of this.nows) span.location = now; }

  setRange(start, end) {
    if (this.range.start !== start || this.range.end !== end) this.range.setv({ start, end });
  }

  /** Fits everything to the range in the same turn in which it changed, so that the charts are painted once. */
  later() {
    this.scale();
    this.pending ??= requestAnimationFrame(() => { this.pending = null; this.moved(); });
  }

  /** Round local times below, and heights that fit what is within sight. */
  scale() {
    const { start, end } = this.range;
    const width = $("chart-arrivals").clientWidth || 800;
    const found = ticks(start, end, this.zone, Math.max(2, Math.floor(width / (90 * large()))));
    const labels = new Map(found);
    const shown = found.map(([t, text]) => t + text).join();
    if (shown !== this.shown) {
      this.shown = shown;
      for (const f of Object.values(this.figures)) {
        f.below[0].ticker.ticks = [...labels.keys()];
        f.below[0].major_label_overrides = labels;
      }
    }
    const highest = (names) => {
      let top = 0;
      for (const [name, key] of names) {
        const d = this.data[name];
        if (!d) continue;
        for (let i = 0; i < d.x.length; i++) {
          // a step reaches into sight from its left end, a line from its neighbour
          if (d.x[i] <= end && (d.x[i + 1] ?? d.x[i]) >= start && d[key][i] > top) top = d[key][i];
        }
      }
      return top;
    };
    const fit = (figure, top) => {
      const wanted = top > 0 ? top * 1.08 : 1;
      if (Math.abs(figure.y_range.end - wanted) > wanted * 1e-6) figure.y_range.setv({ start: 0, end: wanted });
    };
    fit(this.figures.arrivals, highest([["truth", "y"], ["band", "q95"], ["capacity", "y"], ["ahead", "y"], ["expected", "y"]]));
    fit(this.figures.members, highest([["working", "y"], ["requested", "y"], ["planned", "y"], ["reactive", "y"], ["whatif", "y"]]));
    const slowest = highest([["delay", "y"]]), target = highest([["slo", "y"]]);
    const inSight = slowest > target / 4;
    fit(this.figures.delay, inSight ? Math.max(slowest, target) : slowest * 1.4);
    $("slo").classList.toggle("off", !inSight);
    fit(this.figures.lag, highest([["lag", "y"]]));
    const boxes = (list, top) => ({ left: list.map((w) => w.left), right: list.map((w) => w.right), bottom: list.map(() => 0),
      top: list.map(() => 2 * top), name: list.map((w) => (((w.right - w.left) * width) / (end - start) > 64 ? w.name ?? "" : "")), y: list.map(() => top),
      at: list.map((w) => (w.left < this.now && this.now < w.right && ((this.now - w.left) * width) / (end - start) < 80 * large() ? this.now : w.left)) }); // the line of now would cross its name
    const gaps = Object.entries(this.data.holes ?? {}).map(([name, list]) => [`${name}Gaps`, list, name]);
    for (const [name, list, where] of [["windows", this.data.spans ?? [], "arrivals"], ...gaps]) {
      const made = boxes(list, this.figures[where].y_range.end), key = JSON.stringify(made);
      if (this.keys[name] !== key) { this.keys[name] = key; this.sources[name].data = made; }
    }
  }
}

/** Value of a series at an instant: of the last point at or before it. */
export function valueAt(d, t, key = "y") {
  if (!d || !d.x.length || t < d.x[0]) return null;
  let low = 0, high = d.x.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (d.x[middle] <= t) low = middle; else high = middle - 1;
  }
  const v = d[key][low];
  return Number.isFinite(v) ? v : null;
}
