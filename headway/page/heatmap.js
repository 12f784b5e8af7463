// Time × partition: share of one member's capacity on a log scale, 80 % and 100 % marked; unknown shows the hatching behind.

const SCALE = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1];
export const HEAT = ["--h0", "--h1", "--h2", "--h3", "--h4", "--h5", "--h6", "--h7"];
export const HEAT_WORDS = ["to 2 %", "5 %", "10 %", "20 %", "40 %", "80 %", "100 %", "above: saturated"];
/** So many partitions that outgrow a member are marked at the hour in which they do; the table beside it has all. */
const MARKED = 3;
const MAX_ROWS = 250;

function rgba(colour) {
  const [, r, g, b] = /^#(..)(..)(..)$/.exec(colour).map((part, i) => (i ? parseInt(part, 16) : 0));
  return (255 << 24) | (b << 16) | (g << 8) | r;
}
/** Rows in the order in which they are shown, busiest at the top; with very many, each shows the busiest of its few. */
export function rowsOf(body, order) {
  const mean = body.values.map((row) => row.reduce((sum, v) => sum + (v ?? 0), 0));
  const rows = body.partitions.map((p, i) => i);
  if (order === "load") rows.sort((a, b) => mean[b] - mean[a] || a - b);
  const per = Math.ceil(rows.length / MAX_ROWS);
  const groups = [];
  for (let k = 0; k < rows.length; k += per) groups.push(rows.slice(k, k + per));
  return { groups, per };
}
export function heatLayer(figure, css) {
  const hatch = new Bokeh.ColumnDataSource({ data: { left: [], right: [], bottom: [], top: [] } });
  const images = new Bokeh.ColumnDataSource({ data: { image: [], x: [], y: [], dw: [], dh: [] } });
  figure.quad({ left: { field: "left" }, right: { field: "right" }, bottom: { field: "bottom" }, top: { field: "top" },
    source: hatch, line_color: null, fill_color: css("--panel"), hatch_pattern: "right_diagonal_line", hatch_color: css("--grey"),
    hatch_alpha: 0.55, hatch_weight: 0.7, hatch_scale: 8 });
  figure.image_rgba({ image: { field: "image" }, x: { field: "x" }, y: { field: "y" }, dw: { field: "dw" }, dh: { field: "dh" },
    source: images });
  const marks = new Bokeh.ColumnDataSource({ data: { x: [], y: [], text: [], align: [], dx: [] } }), size = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  figure.scatter({ x: { field: "x" }, y: { field: "y" }, source: marks, marker: "diamond", size: 13 * size, fill_color: css("--mark"), line_color: css("--panel"), line_width: 1.5 });
  figure.text({ x: { field: "x" }, y: { field: "y" }, text: { field: "text" }, source: marks, text_align: { field: "align" }, x_offset: { field: "dx" }, y_offset: 9 * size, text_baseline: "middle", text_color: css("--text"),
    text_font_size: `${11 * size}px`, text_font: "system-ui, sans-serif", background_fill_color: css("--panel"), background_fill_alpha: 0.9, padding: 2, border_radius: 3 });
  const { ndarray } = Bokeh.require("core/util/ndarray");
  const palette = HEAT.map((name) => rgba(css(name)));
  const paint = (values, groups, capacity, columns) => {
    const image = new Uint32Array(groups.length * columns);
    groups.forEach((group, r) => {
      const first = (groups.length - 1 - r) * columns; // an image begins at the bottom, the list at the top
      for (let c = 0; c < columns; c++) {
        let most = -1;
        for (const i of group) { const v = values[i]?.[c]; if (v !== null && v !== undefined && v > most) most = v; }
        if (most < 0) continue;
        const s = most / capacity;
        let k = 0;
        while (k < SCALE.length && s > SCALE[k]) k++;
        image[first + c] = palette[k];
      }
    });
    return image;
  };
  return {
    draw(body, order, at, now) {
      const { groups, per } = rowsOf(body, order), count = groups.length;
      let busiest = 1e-9;
      for (const row of body.values) for (const v of row) if (v > busiest) busiest = v;
      const capacity = body.name === "lag" ? busiest : body.capacity_per_member ?? busiest;
      const columns = body.values[0]?.length ?? 0, start = Date.parse(body.from), step = body.step_s * 1000;
      const parts = [{ image: paint(body.values, groups, capacity, columns), n: columns, x: start, dw: columns * step }];
      if (body.ahead && body.ahead.values.length && body.name === "arrivals") {
        const place = new Map(body.ahead.partitions.map((p, i) => [p, i]));
        const values = body.partitions.map((p) => body.ahead.values[place.get(p)] ?? []);
        const n = body.ahead.values[0].length;
        parts.push({ image: paint(values, groups, capacity, n), n, x: Date.parse(body.ahead.from), dw: n * body.ahead.step_s * 1000 });
      }
      const drawn = parts.filter((p) => p.dw > 0 && count > 0);
      const { start: first, end: last } = figure.x_range;
      hatch.data = body.lost || !count ? { left: [first], right: [now], bottom: [0], top: [1] } : drawn.length ? { left: [drawn[0].x], right: [drawn[0].x + drawn[0].dw], bottom: [0], top: [count] }
        : { left: [], right: [], bottom: [], top: [] };
      images.data = { image: drawn.map((p) => ndarray(p.image, { dtype: "uint32", shape: [count, p.n] })), x: drawn.map((p) => p.x), y: drawn.map(() => 0),
        dw: drawn.map((p) => p.dw), dh: drawn.map(() => count) };
      const rowOf = new Map(groups.flatMap((group, r) => group.map((i) => [body.partitions[i], count - r - 0.5])));
      const soon = (body.hot ?? []).filter((h) => h.saturates_at && rowOf.has(h.partition)).slice(0, MARKED);
      const late = (h) => (Date.parse(h.saturates_at) - first) / (last - first) > 0.75; // its words go where there is room
      marks.data = { x: soon.map((h) => Date.parse(h.saturates_at)), align: soon.map((h) => (late(h) ? "right" : "left")), dx: soon.map((h) => (late(h) ? -10 : 10) * size), y: soon.map((h) => rowOf.get(h.partition)), text: soon.map((h) => `p${h.partition}: 100 % at ${at(h.saturates_at)}`) };
      figure.y_range.setv({ start: 0, end: Math.max(count, 1) });
      const every = Math.max(1, Math.ceil(count / 10));
      const labels = new Map();
      for (let r = 0; r < count; r += every) labels.set(count - r - 0.5, `p${body.partitions[groups[r][0]]}`);
      figure.left[0].ticker = new Bokeh.FixedTicker({ ticks: [...labels.keys()] });
      figure.left[0].major_label_overrides = labels;
      return { groups, per };
    },
  };
}
