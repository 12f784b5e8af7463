// Evidence: error by lead time, coverage, hours of the week, and the hours that went worst.
import { $, box, el, fill, stamp, svg, table } from "/page/dom.js";
import { DASH, dayTime, duration, members, ms, number, share, utc } from "/page/format.js";

const W = 340, H = 170, L = 40, R = 18, T = 8, B = 24;
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const label = (x, y, text, anchor = "middle") => Object.assign(svg("text", { x, y, "text-anchor": anchor }), { textContent: text });

function frame(title, xs, ys, children) {
  const grid = ys.flatMap(([y, text]) => [svg("line", { x1: L, x2: W - R, y1: y, y2: y, class: "axis" }), label(L - 5, y + 3, text, "end")]);
  return svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title }, ...grid, ...xs.map(([x, text]) => label(x, H - 8, text)), ...children);
}
const short = (s) => (s < 3600 ? `${s / 60} m` : `${s / 3600} h`);

function byLead(leads) {
  const naive = ["last value", "yesterday", "last week"];
  const best = leads.map((l) => Math.min(...naive.map((n) => l.naive_wape[n] ?? Infinity)));
  const top = Math.max(0.05, ...leads.map((l) => l.wape ?? 0), ...best.filter(Number.isFinite)) * 1.1;
  const x = (i) => L + ((W - L - R) * (i + 0.5)) / leads.length, y = (v) => H - B - ((H - B - T) * v) / top;
  const ours = leads.map((l, i) => [x(i), y(l.wape ?? 0)]);
  const theirs = best.map((v, i) => [x(i), y(v)]).filter(([, v]) => Number.isFinite(v));
  return el("div", {}, el("h4", {}, "Error by lead time (WAPE); dashed: the best of last value, yesterday, last week"),
    frame(`error by lead time, ${leads.map((l) => `${short(l.lead_s)} ${share(l.wape, 1)}`).join(", ")}`, leads.map((l, i) => [x(i), short(l.lead_s)]),
      [0, top / 2, top].map((v) => [y(v), share(v, 0)]), [svg("path", { d: path(theirs), class: "naive" }), svg("path", { d: path(ours), class: "ours" }),
        ...ours.map(([cx, cy]) => svg("circle", { cx, cy, r: 3, class: "dot" }))]));
}
function reliable(points) {
  const levels = Object.entries(points).map(([level, came]) => [Number(level), came]);
  const x = (v) => L + (W - L - R) * v, y = (v) => H - B - (H - B - T) * v;
  return el("div", {}, el("h4", {}, "Reliability: a point above the line covers more than it says"),
    frame(`reliability, ${levels.map(([l, c]) => `q${100 * l} covers ${share(c, 1)}`).join(", ")}`, [[x(0), "0 %"], [x(0.5), "50 %"], [x(1), "100 %"]],
      [0, 0.5, 1].map((v) => [y(v), share(v, 0)]), [svg("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "naive" }),
        svg("path", { d: path(levels.map(([l, c]) => [x(l), y(c)])), class: "ours" }), ...levels.map(([l, c]) => svg("circle", { cx: x(l), cy: y(c), r: 3.5, class: "dot" }))]));
}
function hours(rows) {
  const days = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"], top = Math.max(0.05, ...rows.map((r) => r.wape ?? 0));
  const x = (h) => L + ((W - L - R) * h) / 168, y = (v) => H - B - ((H - B - T) * v) / top, w = (W - L - R) / 168;
  const bad = rows.filter((r) => r.wape !== null && r.coverage < 0.9);
  const worst = rows.reduce((a, b) => ((b.wape ?? 0) > (a.wape ?? 0) ? b : a), rows[0]);
  return el("div", {}, el("h4", {}, "Error by hour of the week, leads up to an hour; red with a tick: q95 covered less than 90 %"),
    frame(`error by hour of the week, highest ${share(worst.wape, 1)} on ${days[Math.floor(worst.hour / 24)]} at ${worst.hour % 24}:00`, days.map((d, i) => [x(24 * i + 12), d]), [0, top].map((v) => [y(v), share(v, 0)]),
      rows.filter((r) => r.wape !== null).map((r) => svg("rect", { x: x(r.hour), y: y(r.wape), width: Math.max(w - 0.3, 0.8), height: H - B - y(r.wape), class: r.coverage < 0.9 ? "over" : "b0" })).concat(bad.map((r) => svg("rect", { x: x(r.hour), y: H - B + 2, width: Math.max(w - 0.3, 0.8), height: 4, class: "over" })))));
}
/** What the last day cost and how late it was, beside the reactive rule and a static peak. */
function lastDay(g) {
  const d = g.day, price = g.price_per_member_hour, known = d.known_h;
  if (d.member_hours === null) return el("p", {}, "What the last day cost is not known yet: members have not been seen for long enough. It is known from the second look on.");
  const cost = (hours) => (price === null ? [] : [hours === null ? DASH : number(hours * price)]), of = (hours) => (hours === null ? DASH : share(hours / d.member_hours - 1, 0).replace(/^(?!-|0)/, "+"));
  const late = d.late_records === null ? "not measured" : `${number(d.late_records)} of ${number(d.records)}`;
  const line = (name, hours, ...rest) => [name, number(hours), ...cost(hours), of(hours), ...rest];
  const rows = [[el("b", {}, g.mode === "act" ? "Headway, acting" : "this group"), number(d.member_hours), ...cost(d.member_hours), DASH, late, `${d.rescales} of ${g.rescales_per_day}`],
    line("the reactive rule", d.reactive_member_hours, "not played", "no budget"),
    ...(d.static_peak_members === null ? [] : [line(`static peak, ${members(d.static_peak_members)}`, d.static_peak_members * known, "not played", "0")])];
  return box("The last 24 hours", table(["Last 24 h", "#Member-hours", ...(price === null ? [] : [`#Cost, at ${number(price)} a member-hour`]), "#Difference", "#Late records", "#Rescales"], rows, `The last 24 hours, of which members were seen for ${duration(known * 3600)}`),
    el("p", { class: "quiet" }, `Members were seen for ${duration(known * 3600)} of them.`, price === null ? el("span", {}, " Money is shown with ", el("code", {}, "price_per_member_hour"), " in the settings.") : null,
      " Late records of rules are played by ", el("code", {}, `headway report --group ${g.group}`), "."));
}
export function drawQuality(g, q) {
  const zone = g.timezone;
  if (!q.leads.length) {
    fill($("quality"), lastDay(g), box("Evidence", el("p", { class: "quiet" }, `${q.why ?? "Nothing is scored yet."} `, el("code", {}, `headway report --group ${g.group}`), " scores recorded or imported history at once.")));
    return;
  }
  const s = g.scores, said = [`${q.forecasts} forecasts since ${dayTime(ms(q.since), zone)} (${utc(ms(q.since))})`,
    s.wape !== null && s.wape !== undefined ? `the acting forecast's error ${share(s.wape, 1)}` : null, s.coverage !== null && s.coverage !== undefined ? `q95 covered ${share(s.coverage, 1)}` : null].filter(Boolean);
  fill($("quality"), lastDay(g), el("p", {}, `${said.join("; ")}.`), el("div", { class: "plots" }, byLead(q.leads), reliable(q.reliability), q.hours.length ? hours(q.hours) : null,
    el("div", { class: "whole" }, el("h4", {}, "Worst hours, and what was different"), q.worst.length ? table(["From", "#Came, rec/s", "#Expected", "Cause"],
      q.worst.map((w) => [stamp(w.from, zone, 0), number(w.came), number(w.expected), w.cause]), "Worst hours") : el("p", { class: "quiet" }, "none yet"))),
  el("details", { class: "as-table" }, el("summary", {}, "As a table"), el("div", { tabindex: "0", role: "group", "aria-label": "evidence as a table" }, table(["#Lead", "#Points", "#WAPE", "#Bias", "#q90 covers", "#q95 covers", "#Last value", "#Yesterday", "#Last week"],
    q.leads.map((l) => [duration(l.lead_s), l.points, share(l.wape, 1), share(l.bias, 1), share(l.coverage["0.9"], 1), share(l.coverage["0.95"], 1), ...["last value", "yesterday", "last week"].map((n) => share(l.naive_wape[n], 1))]), "Error by lead time"))));
}
