// The overview: four figures, and one row a group, those that need a person first.
import { $, badge, el, fill, svg } from "/page/dom.js";
import { DASH, duration, known, ms, number, rate, sentence, share, whole } from "/page/format.js";

const WIDTH = 168, HEIGHT = 34;

/** A day of arrivals and the hours ahead, drawn small: line, gap, median, band. */
export function spark(s) {
  const points = s.arrivals, ahead = s.ahead, step = s.step_s * 1000;
  const start = s.from ? ms(s.from) : null;
  if (start === null || !points.some((v) => v !== null)) return el("span", { class: "quiet" }, s.why ?? "nothing is recorded yet");
  const end = ahead ? ms(ahead.from) + ahead.high.length * ahead.step_s * 1000 : start + points.length * step;
  const top = Math.max(1e-9, ...points.filter((v) => v !== null), ...(ahead ? ahead.high : []));
  const x = (t) => (WIDTH * (t - start)) / Math.max(end - start, 1), y = (v) => HEIGHT - 2 - ((HEIGHT - 5) * v) / top;
  const at = (t, v) => `${x(t).toFixed(1)} ${y(v).toFixed(1)}`;
  let line = "", pen = "M";
  points.forEach((v, i) => { if (v === null) pen = "M"; else { line += pen + at(start + (i + 0.5) * step, v); pen = "L"; } });
  const parts = [];
  for (let i = 0; i < points.length; i++) { // what is not known is hatched, but not what lies before the first record
    if (points[i] !== null || points.slice(0, i).every((v) => v === null)) continue;
    const first = i;
    while (i + 1 < points.length && points[i + 1] === null) i++;
    if (i < points.length - 1 || i - first >= 2) parts.push(svg("rect", { x: x(start + first * step), width: x(start + (i + 1) * step) - x(start + first * step), y: 0, height: HEIGHT, fill: "url(#hatch)" }));
  }
  if (ahead && ahead.high.length) {
    const when = ahead.high.map((_, i) => ms(ahead.from) + (i + 0.5) * ahead.step_s * 1000);
    const upper = when.map((t, i) => at(t, ahead.high[i])), lower = when.map((t, i) => at(t, ahead.median[i]));
    parts.push(svg("path", { d: `M${upper.join("L")}L${[...lower].reverse().join("L")}Z`, class: "s-band" }),
      svg("path", { d: `M${lower.join("L")}`, class: "s-median" }),
      svg("line", { x1: x(ms(ahead.from)), x2: x(ms(ahead.from)), y1: 0, y2: HEIGHT, class: "s-now" }));
  }
  parts.push(svg("path", { d: line, class: "s-truth" }));
  const known = points.filter((v) => v !== null);
  const text = `arrivals of the last day, ${number(Math.min(...known))} to ${rate(Math.max(...known))}` +
    (points.includes(null) ? "; hatched: not known" : "") + (s.topics?.length > 1 ? `; the sum of ${s.topics.join(", ")}` : "") +
    (ahead ? `; the hours ahead up to ${rate(Math.max(...ahead.high))} at q${100 * ahead.level}${s.topics?.length > 1 ? " (topics' quantiles added: at most so much)" : ""}` : "; no forecast yet");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", preserveAspectRatio: "xMinYMid meet", role: "img", "aria-label": text },
    Object.assign(svg("title"), { textContent: text }), ...parts);
}
function cell(label, className, ...children) {
  return el("td", { "data-label": label, class: className || null, role: "cell" }, ...children);
}
const two = (first, second) => [el("span", { class: "one" }, first), el("span", { class: "two" }, second)];
function row(g, href) {
  const r = g.replicas, d = g.day, wape = g.scores.wape, coverage = g.scores.coverage;
  const bad = (wape !== null && wape !== undefined && wape > 0.3) || (coverage !== null && coverage !== undefined && coverage < 0.9);
  const late = known(g.latency_p99_s) && g.latency_p99_s > g.slo_s, shut = g.mode === "act" && !g.gate.may_act;
  const troubles = Object.entries(g.problems).map(([k, v]) => `${k}: ${v}`);
  const same = r.working === r.requested && r.requested === r.planned;
  const counts = same ? whole(r.working) : `${whole(r.working)} / ${whole(r.requested)} / ${whole(r.planned)}`;
  return el("tr", { role: "row", "data-group": g.group, class: `row-${g.state}` },
    cell("State", "c-state", badge(g.state)),
    el("th", { scope: "row", role: "rowheader", class: "c-group" }, el("a", { href }, g.group),
      g.topics.join() === g.group ? null : el("span", { class: "two" }, g.topics.join(", "))),
    cell("Arrivals", "c-spark", spark(g.spark)),
    cell("Arrivals now, records/s", "n", number(g.snapshot?.arrival_rate)),
    cell("Members", "n c-members", el("span", { title: "working / requested / planned" }, counts)),
    cell("Next", "c-next", el("span", {}, troubles.length ? troubles[0] : sentence(g))),
    cell("Delay and lag", `n ${late ? "attention" : ""}`, ...two(`${late ? "▲ " : ""}${duration(g.latency_p99_s)}`, known(g.snapshot?.lag) ? `${number(g.snapshot.lag)} rec` : DASH)),
    cell("Saved, 7 days", "n", ...(d.saved_vs_static === null ? [DASH] : [el("span", { class: "one", title: `of what ${whole(d.static_peak_members)} members all the time would have used` }, share(d.saved_vs_static, 0)),
      d.saved_over_h < 160 ? el("span", { class: "two" }, `of ${duration(d.saved_over_h * 3600)}`) : null])),
    cell("Forecast error, q95", `n ${bad ? "attention" : "quiet"}`, ...two(`${bad ? "▲ " : ""}${share(wape, 1)}`, share(coverage, 1))),
    cell("Mode, gate", "c-mode", ...two(g.paused ? `${g.mode}, paused` : g.mode,
      el("span", { class: shut ? "attention" : null, title: g.gate.reasons.join("; ") }, g.gate.may_act ? "gate open" : `${shut ? "▲ " : ""}gate closed`))));
}
function figure(label, value, note) {
  return el("div", {}, el("dt", {}, label), el("dd", {}, value), el("dd", { class: "note" }, note));
}
function figures(f) {
  const saved = f.member_hours !== null && f.reactive_member_hours ? 1 - f.member_hours / f.reactive_member_hours : null;
  const late = f.late_records === null ? "delay is not measured yet"
    : f.records ? `${share(f.late_records / f.records)} of ${number(f.records)} records` : "no records yet";
  fill($("figures"),
    figure("Late records, 24 h", f.late_records === null ? DASH : number(f.late_records), late),
    figure("Member-hours, 24 h", number(f.member_hours), f.reactive_member_hours === null ? "the reactive rule is not known yet"
      : `the reactive rule: ${number(f.reactive_member_hours)}${saved === null ? "" : `, ${saved >= 0 ? share(saved, 0) + " less" : share(-saved, 0) + " more"}`}`),
    figure("Rescales, 24 h", whole(f.rescales), f.rescale_budget ? `budget ${f.rescale_budget} a day` : "no group yet"),
    figure("Oldest input", f.oldest_input ? duration(f.oldest_input.age_s) : DASH,
      f.oldest_input ? `${f.oldest_input.input} of ${f.oldest_input.group}` : "nothing was read yet"));
}
export function drawOverview(body, link) {
  figures(body.figures);
  const rows = body.groups.map((g) => row(g, link(g.group)));
  if (!rows.length) {
    rows.push(el("tr", {}, el("td", { colspan: "10", class: "empty" }, "No group is configured yet. ",
      el("code", {}, "headway init"), " lists the groups of your cluster and writes a first headway.toml; then ", el("code", {}, "headway serve"), ".")));
  }
  fill($("groups").tBodies[0], ...rows);
  const count = { attention: 0, acting: 0, fine: 0 };
  for (const g of body.groups) count[g.state] += 1;
  const words = body.groups.length === 0 ? "no groups" : count.attention ? `${count.attention} of ${body.groups.length} need attention`
    : count.acting ? `${count.acting} acting now` : `${body.groups.length === 1 ? "1 group" : `all ${body.groups.length}`} fine`;
  $("summary").textContent = words;
  document.title = `${count.attention ? "▲ " : ""}${words} · Headway`;
}
