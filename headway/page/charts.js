// The two panels of a group on one time axis, drawn by Bokeh's own JavaScript.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function style(figure) {
  const text = css("--quiet"), line = css("--line");
  figure.background_fill_color = figure.border_fill_color = css("--panel");
  figure.outline_line_color = line;
  figure.toolbar.logo = null;
  for (const axis of [...figure.below, ...figure.left]) {
    axis.axis_label_text_color = axis.major_label_text_color = text;
    axis.axis_line_color = axis.major_tick_line_color = line;
    axis.minor_tick_line_color = null;
  }
  for (const grid of figure.center) if ("grid_line_color" in grid) grid.grid_line_color = line;
  for (const grid of figure.center) if ("grid_line_alpha" in grid) grid.grid_line_alpha = 0.5;
}

export function charts() {
  if (!window.Bokeh || !Bokeh.Plotting) return null;
  const source = (columns) => new Bokeh.ColumnDataSource({ data: Object.fromEntries(columns.map((c) => [c, []])) });
  const sources = {
    truth: source(["x", "y"]), band: source(["x", "low", "q90", "q95", "median"]), capacity: source(["x", "y"]),
    working: source(["x", "y"]), requested: source(["x", "y"]), planned: source(["x", "y"]), reactive: source(["x", "y"]),
  };
  const figure = (height) => {
    const range = new Bokeh.Range1d({ start: 0, end: 1 });
    const made = Bokeh.Plotting.figure({
      height, sizing_mode: "stretch_width", x_axis_type: "datetime", x_range: range, min_border_left: 70,
      tools: "xpan,xwheel_zoom,xbox_zoom,reset", y_range: new Bokeh.DataRange1d({ start: 0, range_padding: 0.08 }),
    });
    made.toolbar.active_scroll = null;
    style(made);
    return made;
  };
  const field = (x, y, name, more) => ({ x: { field: x }, y: { field: y }, source: sources[name], ...more });
  const arrivals = figure(320), members = figure(190);
  arrivals.left[0].formatter = new Bokeh.NumeralTickFormatter({ format: "0.[0]a" });
  arrivals.varea({ x: { field: "x" }, y1: { field: "low" }, y2: { field: "q95" }, source: sources.band,
    fill_color: css("--band95"), fill_alpha: 0.8 });
  arrivals.varea({ x: { field: "x" }, y1: { field: "low" }, y2: { field: "q90" }, source: sources.band,
    fill_color: css("--band90"), fill_alpha: 0.8 });
  arrivals.step(field("x", "y", "capacity", { line_color: css("--grey"), line_dash: "dotted", line_width: 1.5, mode: "after" }));
  arrivals.line(field("x", "median", "band", { line_color: css("--blue"), line_width: 1 }));
  arrivals.line(field("x", "y", "truth", { line_color: css("--text"), line_width: 1.5 }));
  members.step(field("x", "y", "reactive", { line_color: css("--grey"), line_width: 1, mode: "after" }));
  members.step(field("x", "y", "requested", { line_color: css("--amber"), line_width: 1, mode: "after" }));
  members.step(field("x", "y", "planned", { line_color: css("--blue"), line_width: 2, line_dash: "dashed", mode: "after" }));
  members.step(field("x", "y", "working", { line_color: css("--text"), line_width: 2, mode: "after" }));
  const ranges = [arrivals.x_range, members.x_range];
  for (const [one, other] of [ranges, [...ranges].reverse()]) {
    one.connect(one.change, () => {
      if (one.start !== other.start || one.end !== other.end) other.setv({ start: one.start, end: one.end });
    });
  }
  const now = [arrivals, members].map((f) => {
    const span = new Bokeh.Span({ dimension: "height", location: 0, line_color: css("--vermilion"), line_width: 1 });
    f.add_layout(span);
    return span;
  });
  for (const [id, f] of [["arrivals", arrivals], ["members", members]]) {
    document.getElementById(id).replaceChildren();
    Bokeh.Plotting.show(f, `#${id}`);
  }
  return {
    draw(data) {
      for (const [name, columns] of Object.entries(data.series)) sources[name].data = columns;
      ranges[0].setv({ start: data.start, end: data.end });
      for (const span of now) span.location = data.now;
    },
  };
}
