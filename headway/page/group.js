// One group: what its panels need from the API, and how it is laid on the axis and into the texts around it.
import { NONE, valueAt } from "/page/charts.js";
import { $, badge, el, fill, table } from "/page/dom.js";
import { bound, DASH, dayTime, duration, hhmm, members, ms, number, plural, rate, sentence, share, utc, whole, zoneName } from "/page/format.js";

export const HOUR = 3600e3;
const iso = (t) => new Date(t).toISOString().slice(0, 19) + "Z";
const gaps = (values) => values.map((v) => v ?? NaN);
/** Spans of which nothing is known: runs of null; fewer than `late` newest ones may still be on their way. */
function holes(x, values, end, late = 3) {
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (values[i] !== null) continue;
    const first = i;
    while (i + 1 < values.length && values[i + 1] === null) i++;
    if (i < values.length - 1 || i - first >= late) found.push({ left: x[first], right: x[i + 1] ?? end });
  }
  return found;
}

/** The span before the first point of a series; all of it where there is none: nothing is known then. */
function before(x, start, now, slack) {
  const first = x.length ? x[0] : now;
  return first - start > slack ? [{ left: start, right: first }] : [];
}
/** Steps as they held: what is known ends where it is not known any more, not at its last change. */
function held({ x, y }) {
  const out = { x: [], y: [] };
  x.forEach((t, i) => {
    if (i && !Number.isFinite(y[i]) && Number.isFinite(y[i - 1])) { out.x.push(t); out.y.push(y[i - 1]); }
    out.x.push(t);
    out.y.push(y[i]);
  });
  return out;
}

/** The calls that feed the panels; `slow` ones are asked again at most every few seconds. */
export function calls(g, view) {
  const base = `/v1/groups/${encodeURIComponent(g.group)}`, now = ms(g.now), start = now - view.hours * HOUR;
  const past = `from=${iso(start)}&to=${iso(now)}`, axis = `from=${iso(start)}&to=${iso(now + ahead(view))}`;
  const of = g.topics.includes(view.topic) ? `&topic=${encodeURIComponent(view.topic)}` : "";
  return {
    fast: { arrivals: `${base}/series?name=arrivals&${past}${of}`, forecast: `${base}/forecast?by=topic${of}`,
      members: `${base}/series?name=replicas&${past}`, plan: `${base}/plan`, delay: `${base}/series?name=latency&${past}`,
      lag: `${base}/series?name=lag&${past}${of}`, assignment: `${base}/assignment?since=${iso(start)}`, windows: `${base}/windows?${axis}`,
      ...(view.lead && view.lead !== "at" ? { expected: `${base}/expected?lead=${view.lead}&${past}${of}` } : {}) },
    slow: { heat: `${base}/heatmap?name=${view.heat}&${past}&columns=${view.hours > 24 ? 168 : 144}${of}`,
      timeline: `${base}/timeline?since=${iso(start)}`, quality: `${base}/quality${of.replace("&", "?")}`, moves: `${base}/moves`,
      prescale: "/v1/prescale", jobs: "/v1/jobs", audit: "/v1/audit?limit=200" },
  };
}
export const ahead = (view) => Math.min(Math.max((view.hours * HOUR) / 3, HOUR), 24 * HOUR);

/** Series as the charts take them. */
export function series(g, d, view) {
  const now = ms(g.now), end = now + ahead(view), start = now - view.hours * HOUR;
  const t0 = ms(d.arrivals.from), step = d.arrivals.step_s * 1000, values = d.arrivals.values ?? [];
  const out = { truth: { x: values.map((_, i) => t0 + (i + 0.5) * step), y: gaps(values) } };
  out.holes = { arrivals: holes(values.map((_, i) => t0 + i * step), values, t0 + values.length * step) };
  const total = d.forecast.total;
  out.band = { x: [], low: [], q90: [], q95: [], median: [] };
  if (total && total["0.5"]) {
    const f0 = ms(d.forecast.origin), median = total["0.5"], q90 = total["0.9"] ?? median;
    out.band = { x: median.map((_, i) => f0 + (i + 0.5) * d.forecast.step_s * 1000), low: total["0.1"] ?? median, q90,
      q95: total["0.95"] ?? q90, median };
  }
  const points = d.members.points, x = points.map((p) => ms(p.at));
  const column = (key) => {
    const y = gaps(points.map((p) => p[key]));
    return held(x.length && key !== "reactive" && x.at(-1) < now ? { x: [...x, now], y: [...y, y.at(-1)] } : { x, y });
  };
  out.holes.members = before(x, start, now, 10 * 60e3).concat(holes(x, points.map((p) => p.working ?? p.requested), now, 0));
  out.working = column("working");
  out.requested = column("requested");
  out.reactive = column("reactive");
  const steps = d.plan.steps ?? [];
  out.planned = steps.length ? { x: [...steps.map((s) => Math.max(ms(s.from), now)), end], y: [...steps.map((s) => s.replicas), steps.at(-1).replicas] } : NONE;
  const able = g.capacity_per_member;
  out.capacity = able ? { x: out.working.x, y: out.working.y.map((n) => n * able) } : NONE;
  out.ahead = able ? { x: out.planned.x, y: out.planned.y.map((n) => n * able) } : NONE;
  const times = (n) => n * able * g.target_utilization;
  out.target = able ? { x: [...out.working.x, ...out.planned.x], y: [...out.working.y.map(times), ...out.planned.y.map(times)] } : NONE;
  const delays = d.delay.points.map((p) => p.p99_s);
  out.delay = { x: d.delay.points.map((p) => ms(p.at)), y: gaps(delays) };
  const began = out.delay.x.map((t) => t - d.delay.resolution_s * 1000); // a point ends its step
  out.holes.delay = before(began, start, now, 15 * 60e3).concat(holes(began, delays, now));
  out.slo = { x: [start, end], y: [g.slo_s, g.slo_s] };
  const l0 = ms(d.lag.from), ls = d.lag.step_s * 1000, lags = d.lag.values ?? [];
  out.lag = { x: lags.map((_, i) => l0 + (i + 1) * ls), y: gaps(lags) };
  out.holes.lag = holes(lags.map((_, i) => l0 + i * ls), lags, l0 + lags.length * ls);
  for (const [name, panel] of [["arrivals", d.arrivals], ["members", d.members], ["delay", d.delay], ["lag", d.lag]]) {
    if (panel.lost) out.holes[name] = [{ left: start, right: now }]; // its call failed: nothing of it is known
  }
  const said = d.expected?.points ?? [];
  out.expected = { x: said.map((p) => ms(p.at)), y: gaps(said.map((p) => p.median)) };
  out.expectedHigh = { x: out.expected.x, y: gaps(said.map((p) => p.high)) };
  out.spans = d.windows.windows.map((w) => ({ left: ms(w.from), right: ms(w.to), name: w.name ?? w.text.split(" from ")[0], text: w.text }));
  return out;
}

function topicLink(topic) {
  const u = new URLSearchParams(location.hash.slice(1));
  u.set("topic", topic);
  return `#${u}`;
}

const fact = (name, state, ...said) => el("div", {}, el("dt", {}, name), el("dd", {}, state ? el("b", { class: state[0] }, `${state[1]} `) : null, ...said));

/** Header and sentences; of a group of several topics, which one the charts are of. */
export function drawHead(g, topic, forecast, missing = []) {
  const zone = g.timezone, now = ms(g.now), gate = g.gate.may_act;
  $("group-title").textContent = g.group;
  fill($("group-state"), badge(g.state));
  $("group-facts").textContent = [g.topics.length === 1 && g.topics[0] !== g.group ? `topic ${g.topics[0]}` : null,
    ...(g.snapshot ? [`${rate(g.snapshot.arrival_rate)} now`, `${whole(g.replicas.working)} working, ${whole(g.replicas.requested)} requested`] : ["not seen yet"])].filter(Boolean).join(" · ");
  const shown = g.topics.includes(topic) ? topic : g.topics[0];
  fill($("group-topics"), ...(g.topics.length < 2 ? [] : ["Charts of ", ...g.topics.flatMap((t, i) => [i ? ", " : "",
    t === shown ? el("strong", { "aria-current": "true" }, t) : el("a", { href: topicLink(t) }, t)])]));
  $("sentence").textContent = sentence(g);
  const troubles = [...Object.entries(g.problems).map(([k, v]) => `${k}: ${v}`), ...missing];
  if (forecast && forecast.total === null && !g.not_yet) {
    troubles.push(`no forecast: ${forecast.reasons.join("; ")}` + (forecast.possible_from
      ? `; it will be possible from ${dayTime(ms(forecast.possible_from), zone)}` : ""));
  }
  $("trouble").hidden = !troubles.length;
  $("trouble").textContent = troubles.join(" · ");
  const ages = Object.entries(g.ages).map(([k, v]) => `${k} ${duration(v)}`.replaceAll(" ", "\u00a0")).join(" · ");
  fill($("facts"),
    fact("Gate", gate ? ["fine", "● open"] : [g.mode === "act" ? "attention" : "quiet", `${g.mode === "act" ? "▲ " : "○ "}closed`], `${gate ? "the forecast may act" : "the forecast does not act yet"}: ${g.gate.reasons.join("; ")}`),
    fact("Bound by", null, bound(g)),
    fact("One member", null, g.capacity_per_member ? `takes ${rate(g.capacity_per_member)}${g.lead_time_s ? `, useful ${duration(g.lead_time_s)} after its request` : ""}` : "what it takes is not known yet: set capacity_per_member, or let it be learned"),
    fact("Age of inputs", null, ages || "nothing was read yet"));
  $("zone").textContent = `${zone}${zoneName(now, zone) === zone ? "" : ` (${zoneName(now, zone)})`}, now ${hhmm(now, zone)}`;
  $("slo").textContent = duration(g.slo_s);
  $("share").textContent = share(g.target_utilization, 0);
  $("zone").title = utc(now);
}

/** What stands at an instant, as one line. */
export function readout(g, s, t, row = null) {
  const zone = g.timezone, now = ms(g.now), parts = [`${dayTime(t, zone)} (${utc(t).slice(11)})`];
  if (t <= now) {
    const hole = s.holes.arrivals.find((h) => t >= h.left && t < h.right);
    const came = valueAt(s.truth, t);
    parts.push(hole ? "arrivals not known: nothing was recorded then" : `arrived ${came === null ? DASH : rate(came)}`);
    const said = valueAt(s.expected, t);
    if (said !== null) parts.push(`expected ${rate(said)}, q95 ${number(valueAt(s.expectedHigh, t))}`);
    const [w, r, o] = ["working", "requested", "reactive"].map((k) => valueAt(s[k], t));
    parts.push(`${w === null ? "members not known" : `${w} working`}${r === null || r === w ? "" : `, ${r} requested`}${o === null ? "" : `, the rule ${o}`}`);
    const delay = valueAt(s.delay, t), lag = valueAt(s.lag, t);
    if (delay !== null) parts.push(`delay ${duration(delay)}`);
    if (lag !== null) parts.push(`lag ${number(lag)}`);
  } else {
    const middle = valueAt(s.band, t, "median"), high = valueAt(s.band, t, "q95"), n = valueAt(s.planned, t);
    parts.push(middle === null ? "beyond the forecast" : `forecast ${rate(middle)}, q95 ${number(high)}`);
    if (n !== null) parts.push(`${members(n)} planned`);
  }
  if (row) parts.push(ofPartition(row, t));
  for (const w of s.spans) if (t >= w.left && t < w.right) parts.push(w.text);
  return parts.join(" · ");
}

/** What the heat map says of a row (a partition, or with very many the busiest of a few) at an instant. */
function ofPartition({ heat, partitions }, t) {
  const name = partitions.length === 1 ? `partition ${heat.partitions[partitions[0]]}` : `the busiest of ${plural(partitions.length, "partition")} from ${heat.partitions[partitions[0]]} on`;
  const ahead = heat.ahead, from = ms(heat.from), step = heat.step_s * 1000, past = t < from + step * (heat.values[0]?.length ?? 0);
  const cells = partitions.map((i) => (past ? heat.values[i]?.[Math.floor((t - from) / step)]
    : ahead?.values[ahead.partitions.indexOf(heat.partitions[i])]?.[Math.floor((t - ms(ahead.from)) / (ahead.step_s * 1000))])).filter((v) => v !== null && v !== undefined);
  if (!cells.length) return `${name} not known`;
  const most = Math.max(...cells);
  return `${name} ${number(most)} ${heat.unit}${heat.capacity_per_member && heat.name !== "lag" ? `, ${share(most / heat.capacity_per_member)} of a member` : ""}`;
}

/** Rows of a panel's table: at most two hundred instants. */
export function asTable(name, g, s, d) {
  const zone = g.timezone, at = (t) => dayTime(t, zone);
  const thin = (n) => Math.max(1, Math.ceil(n / 200));
  const every = (x, row) => x.filter((_, i) => i % thin(x.length) === 0).map(row);
  if (name === "arrivals") {
    const past = every(s.truth.x, (t) => [at(t), number(valueAt(s.truth, t)), DASH, DASH]);
    const future = every(s.band.x, (t) => [at(t), DASH, number(valueAt(s.band, t, "median")), number(valueAt(s.band, t, "q95"))]);
    return table(["At", "#Arrived, records/s", "#Forecast median", "#Forecast q95"], [...past, ...future], "Arrivals and forecast");
  }
  if (name === "members") {
    const past = every(s.requested.x, (t) => [at(t), whole(valueAt(s.working, t)), whole(valueAt(s.requested, t)), whole(valueAt(s.reactive, t))]);
    const future = every(s.planned.x, (t) => [at(t), DASH, `${whole(valueAt(s.planned, t))} planned`, DASH]);
    return table(["At", "#Working", "#Requested", "#Reactive rule"], [...past, ...future], "Members");
  }
  if (name === "delay" || name === "lag") {
    const show = name === "delay" ? duration : number;
    return table(["At", name === "delay" ? "#Delay" : "#Lag, records"], every(s[name].x, (t) => [at(t), show(valueAt(s[name], t))]), name);
  }
  const body = d.heat;
  if (!body || !body.values.length) return el("p", {}, "Nothing is recorded of the partitions yet.");
  const mean = (row) => { const known = row.filter((v) => v !== null); return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null; };
  const rows = body.values.map((row, i) => [body.partitions[i], mean(row), Math.max(...row.map((v) => v ?? 0)), row.at(-1) ?? row.at(-2) ?? null]);
  rows.sort((a, b) => (b[1] ?? 0) - (a[1] ?? 0));
  return table(["#Partition", `#Mean, ${body.unit}`, "#Highest", "#Now"], rows.slice(0, 200).map((r) => [r[0], ...r.slice(1).map(number)]), "Partitions");
}
