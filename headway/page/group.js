// One group: what its panels need from the API, and how it is laid on the axis and into the texts around it.
import { NONE, valueAt } from "/page/charts.js";
import { $, badge, box, el, fill, svg, table } from "/page/dom.js";
import { bound, DASH, dayTime, duration, hhmm, members, ms, number, plural, rate, sentence, share, utc, when, whole, zoneName } from "/page/format.js";
import { HEAT, HEAT_WORDS } from "/page/heatmap.js";

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
    return x.length && key !== "reactive" && x.at(-1) < now ? { x: [...x, now], y: [...y, y.at(-1)] } : { x, y };
  };
  out.holes.members = holes(x, points.map((p) => p.working ?? p.requested), now, 0);
  out.working = column("working");
  out.requested = column("requested");
  out.reactive = column("reactive");
  const steps = d.plan.steps ?? [];
  out.planned = steps.length ? { x: [...steps.map((s) => Math.max(ms(s.from), now)), end], y: [...steps.map((s) => s.replicas), steps.at(-1).replicas] } : NONE;
  const able = g.capacity_per_member;
  out.capacity = able ? { x: out.working.x, y: out.working.y.map((n) => n * able) } : NONE;
  out.ahead = able ? { x: out.planned.x, y: out.planned.y.map((n) => n * able) } : NONE;
  const delays = d.delay.points.map((p) => p.p99_s);
  out.delay = { x: d.delay.points.map((p) => ms(p.at)), y: gaps(delays) };
  out.holes.delay = holes(out.delay.x.map((t) => t - d.delay.resolution_s * 1000), delays, now); // a point ends its step
  out.slo = { x: [start, end], y: [g.slo_s, g.slo_s] };
  const l0 = ms(d.lag.from), ls = d.lag.step_s * 1000, lags = d.lag.values ?? [];
  out.lag = { x: lags.map((_, i) => l0 + (i + 1) * ls), y: gaps(lags) };
  out.holes.lag = holes(lags.map((_, i) => l0 + i * ls), lags, l0 + lags.length * ls);
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

/** Header and sentences; of a group of several topics, which one the charts are of. */
export function drawHead(g, topic, forecast, missing = []) {
  const zone = g.timezone, now = ms(g.now);
  $("group-title").textContent = g.group;
  fill($("group-state"), badge(g.state));
  const b = bound(g);
  $("group-facts").textContent = [g.topics.join(", "), `${rate(g.snapshot?.arrival_rate)} now`,
    `${whole(g.replicas.working)} working, ${whole(g.replicas.requested)} requested`, b].join(" · ");
  const shown = g.topics.includes(topic) ? topic : g.topics[0];
  fill($("group-topics"), ...(g.topics.length < 2 ? [] : ["Charts of ", ...g.topics.flatMap((t, i) => [i ? ", " : "",
    t === shown ? el("strong", { "aria-current": "true" }, t) : el("a", { href: topicLink(t) }, t)])]));
  $("sentence").textContent = sentence(g);
  const troubles = [...Object.entries(g.problems).map(([k, v]) => `${k}: ${v}`), ...missing];
  if (forecast && forecast.total === null) {
    troubles.push(`no forecast: ${forecast.reasons.join("; ")}` + (forecast.possible_from
      ? `; it will be possible from ${dayTime(ms(forecast.possible_from), zone)}` : ""));
  }
  $("trouble").hidden = !troubles.length;
  $("trouble").textContent = troubles.join(" · ");
  const ages = Object.entries(g.ages).map(([k, v]) => `${k} ${duration(v)}`).join(", ");
  $("gate").textContent = `${g.gate.may_act ? "The forecast may act" : "The forecast does not act yet"}: ${g.gate.reasons.join("; ")}. ` +
    (g.capacity_per_member ? `One member takes ${rate(g.capacity_per_member)}. ` : "What one member takes is not known yet. ") +
    (ages ? `Ages: ${ages}.` : "");
  $("zone").textContent = `${zone}${zoneName(now, zone) === zone ? "" : ` (${zoneName(now, zone)})`}, now ${hhmm(now, zone)}`;
  $("slo").textContent = duration(g.slo_s);
  $("zone").title = utc(now);
}

/** What stands at an instant, as one line. */
export function readout(g, s, t) {
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
  for (const w of s.spans) if (t >= w.left && t < w.right) parts.push(w.text);
  return parts.join(" · ");
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

/** Everything about partitions beside the heat map. */
export function drawPartitions(g, d) {
  const heat = d.heat, zone = g.timezone, now = ms(g.now);
  $("heat-unit").textContent = heat?.name === "lag" ? "lag, share of the largest" : heat?.capacity_per_member ? "share of one member's capacity" : `share of the busiest${g.cap_at_partitions ? " (capacity is not known yet)" : ""}`;
  fill($("heat-key"), ...HEAT.map((name, i) => el("span", {}, el("i", { style: `background: var(${name})` }), HEAT_WORDS[i])), el("span", {}, el("i", { class: "k-gap" }), "not known"));
  const hot = heat?.hot ?? [];
  const soon = hot.filter((h) => h.saturates_at);
  const said = !g.cap_at_partitions ? "Members share every partition of this group: none can outgrow one of them." : soon.length ? `Partition ${soon[0].partition} outgrows one member ${ms(soon[0].saturates_at) <= now ? "now" : `from ${dayTime(ms(soon[0].saturates_at), zone)}`}: more members will not help it; headway split or a faster member will.`
    : hot.length ? "No partition outgrows one member within the forecast." : "Shown as soon as there is a forecast of the partitions.";
  fill($("hot"), box("Hot partitions", el("p", {}, said), hot.length ? table(["#Part.", "#Rec/s", "#Peak, q95", "#Of a member", "Saturates"],
    hot.slice(0, 8).map((h) => [h.partition, number(h.rate), number(h.peak), share(h.share), h.saturates_at ? when(h.saturates_at, zone, now) : "no"]), "Hot partitions") : null));
  owners(g, d.assignment);
  const under = d.moves?.moves ?? [], changes = [...(d.assignment.changes ?? [])].reverse();
  const planned = (d.plan.steps ?? []).flatMap((s) => s.movement.map((m) => ({ ...m, at: s.from })));
  const line = (m) => [when(m.at ?? g.now, zone, now), m.partition, `${m.source ?? "nobody"} → ${m.target}`, m.state ?? "done"];
  const handed = (m) => line({ ...m, at: typeof m.at === "number" ? new Date(m.at * 1000).toISOString() : m.at, source: m.from, target: m.to,
    state: `${m.state}${m.seconds === null ? "" : `, ${duration(m.seconds)}`}${m.detail ? `: ${m.detail}` : ""}` });
  const rows = [...under.slice(0, 60).map(handed), ...planned.slice(0, 20).map((m) => line({ ...m, state: "planned" })), ...changes.slice(0, 40).map(line)];
  fill($("moves"), box("Moves", rows.length ? table(["At", "Partition", "From → to", "State"], rows, "Moves") : el("p", { class: "quiet" },
    d.assignment.members === null ? d.assignment.why : "No partition changed its owner in this range, and none is about to.")));
}
function owners(g, a) {
  if (!g.cap_at_partitions && a.members?.length) {
    fill($("owners"), box("Owners", el("p", {}, `${members(a.members.filter((m) => m.ready).length)} work and share all partitions; ${plural(a.members.filter((m) => !m.ready).length, "member")} starting.`)));
    return;
  }
  if (!a.members || !a.members.length) {
    fill($("owners"), box("Owners", el("p", { class: "quiet" }, a.why ?? "No member is seen: the group is empty, or arrivals come without a cluster that could be asked.")));
    return;
  }
  const able = a.capacity_per_member, most = Math.max(able ?? 0, ...a.members.map((m) => m.load ?? 0), 1e-9), width = 200;
  const rows = a.members.slice(0, 64).map((m) => {
    let x = 0;
    const parts = [...m.partitions].sort((p, q) => (q.rate ?? 0) - (p.rate ?? 0)).map((p, i) => {
      const w = (width * (p.rate ?? 0)) / most, r = svg("rect", { x, y: 0, width: Math.max(w, 0.4), height: 14, class: able && p.rate > able ? "over" : `b${i % 2}` },
        Object.assign(svg("title"), { textContent: `${p.topic}:${p.partition} ${rate(p.rate)}` }));
      x += w;
      return r;
    });
    if (able) parts.push(svg("line", { x1: (width * able) / most, x2: (width * able) / most, y1: 0, y2: 14, class: "limit" }));
    const state = m.draining ? "leaving" : m.ready ? "" : "starting";
    return el("div", { class: "owner" }, el("span", { title: m.id }, m.id),
      svg("svg", { viewBox: `0 0 ${width} 14`, preserveAspectRatio: "none", class: "bar", role: "img", "aria-label": `${m.id}: ${plural(m.partitions.length, "partition")}, ${rate(m.load)}` }, ...parts),
      el("span", { class: "n" }, state || (able && m.load !== null ? share(m.load / able, 0) : number(m.load))));
  });
  const skew = a.skew === null ? "" : `, the busiest carries ${number(a.skew)} times the mean`;
  fill($("owners"), box("Owners", el("p", {}, `${members(a.members.length)}${skew}${a.unowned.length ? `; ${plural(a.unowned.length, "partition")} without an owner` : ""}${able ? "; the dashed mark is one member's capacity." : "."}`), ...rows));
}

/** What else could have been done, dearest last, each with what it would cost in paid member-hours. */
function alternatives(list, chosen) {
  if (!list?.length) return null;
  const total = (a) => a.paid_hours + a.rescale_hours;
  const rows = [...list].sort((a, b) => total(a) - total(b)).map((a) => [a.replicas === chosen ? el("b", {}, `${a.replicas} (chosen)`) : a.replicas,
    number(a.paid_hours), number(a.rescale_hours), number(a.late_records), number(total(a))]);
  return table(["#Members", "#Paid hours", "#Rescale cost", "#Late, expected", "#Total cost"], rows, "Alternatives and their cost");
}
export function drawPlan(g, plan) {
  const zone = g.timezone, now = ms(g.now);
  fill($("plan"), box("Plan",
    plan.reasons.length ? el("p", {}, plan.reasons.slice(0, 4).join("; "), ".") : null,
    plan.proposals?.length ? el("p", {}, ...plan.proposals.map((p) => el("span", { class: "one" }, p.text))) : null,
    plan.steps.length ? table(["From", "#Members", "#For, records/s"], plan.steps.slice(0, 48).map((s) => [when(s.from, zone, now), s.replicas, number(s.demand)]), "Plan") : null,
    plan.alternatives?.length ? el("h4", {}, "Alternatives now") : null, alternatives(plan.alternatives, plan.replicas)));
}
export function drawTimeline(g, body, open) {
  const zone = g.timezone, now = ms(g.now), changes = [...body.changes].reverse().slice(0, 120);
  const before = new Map(changes.map((c, i) => [c.at, changes[i + 1]?.replicas]));
  const rows = changes.map((c) => {
    const was = before.get(c.at), what = c.hold ? "holds" : was === undefined || was === c.replicas ? members(c.replicas) : `${was} → ${c.replicas}`;
    return el("li", {}, el("details", { "data-at": c.at }, el("summary", {}, el("time", { datetime: c.at, title: utc(ms(c.at)) }, when(c.at, zone, now)),
      el("b", {}, what), el("span", {}, c.reason ?? "no reason was kept")), el("div", { class: "full" }, "reading …")));
  });
  const list = rows.length ? el("ul", { class: "timeline" }, ...rows) : el("p", { class: "quiet" }, "No decision changed anything in this range.");
  const opened = new Set([...$("timeline").querySelectorAll("details[open]")].map((x) => x.dataset.at));
  if (opened.size) return; // somebody is reading: nothing moves under their eyes
  fill($("timeline"), box("Decisions", list));
  for (const details of $("timeline").querySelectorAll("details")) details.addEventListener("toggle", () => details.open && open(details));
}
export function decision(g, d) {
  const zone = g.timezone, i = d.inputs ?? {}, acted = d.actuation;
  const facts = [`mode ${d.mode}`, `${whole(i.working)} working of ${whole(i.replicas)} requested`, `lag ${number(i.lag)}`, `arrivals ${rate(i.arrival_rate)}`,
    d.bound_by.kind === "none" ? "nothing held it back" : `bound by ${d.bound_by.kind} ${d.bound_by.id ?? ""}`];
  return [el("p", {}, facts.join(" · ")), el("ul", {}, ...d.reasons.map((r) => el("li", {}, r))),
    el("p", {}, acted ? `Acted: ${whole(acted.previous)} → ${whole(acted.replicas)}, ${acted.state}${acted.detail ? `: ${acted.detail}` : ""}.` : "Nothing was asked of the target."),
    alternatives(d.alternatives ?? d.plan?.alternatives, d.replicas),
    d.plan ? el("p", {}, `Then: ${d.plan.steps.slice(1, 6).map((s) => `${s.replicas} from ${dayTime(ms(s.from), zone)}`).join(", ") || "no further step"}.`) : null,
    i.knobs?.learned_on ? el("p", { class: "quiet" }, i.knobs.learned_on) : null,
    el("p", { class: "quiet" }, "Compute it again: ", el("code", {}, `headway replay-decision '${d.id}'`))];
}
export function drawOperators(g, prescale, audit, jobs, remove) {
  const zone = g.timezone, now = ms(g.now);
  const mine = prescale.windows.filter((w) => w.group === "*" || w.group === g.group);
  const text = (w) => [w.name, w.cron ? `${w.cron} (${w.timezone ?? "UTC"}) for ${w.duration}` : `${w.from ? dayTime(ms(w.from), zone) : "now"} to ${dayTime(ms(w.to ?? w.expires), zone)}`].filter(Boolean).join(": ");
  const asks = (w) => [w.replicas !== undefined ? `exactly ${w.replicas}` : "", w.at_least !== undefined ? `at least ${w.at_least}` : "", w.at_most !== undefined ? `at most ${w.at_most}` : "", w.factor !== undefined ? `${w.factor} × the forecast` : ""].filter(Boolean).join(", ");
  fill($("windows"), box("Windows and events", mine.length ? table(["When", "What", "Remove"], mine.map((w) => [text(w), asks(w), el("button", { type: "button", "data-remove": w.id, "aria-label": `Remove ${text(w)}` }, "Remove")]), "Pre-scaling")
    : el("p", { class: "quiet" }, "None. ", el("code", {}, `headway prescale add --group ${g.group} --cron "0 8 * * 1-5" --duration 2h --at-least 9`))));
  for (const button of $("windows").querySelectorAll("[data-remove]")) button.onclick = () => remove(button.dataset.remove);
  const mineToo = audit.entries.filter((e) => e.scope === "*" || e.scope === g.group).reverse().slice(0, 60);
  const detail = (e) => Object.entries(e.detail).filter(([k, v]) => v !== null && k !== "id").map(([k, v]) => `${k} ${v}`).join(", ");
  fill($("entries"), box("Audit log entries", mineToo.length ? table(["At", "Who", "Did", "Detail"], mineToo.map((e) => [when(e.at, zone, now), e.actor, e.action, detail(e)]), "Audit log")
    : el("p", { class: "quiet" }, "Nobody has changed anything yet. Modes, pauses, approvals and windows are written down here with who did it.")));
  const ours = jobs.jobs.filter((j) => j.group === null || j.group === g.group);
  fill($("schedule"), box("Jobs of the schedule", ours.length ? table(["Job", "Last run", "#Took", "Result", "Last success", "Next run"], ours.map((j) => [j.job,
    j.last ? when(j.last.started, zone, now) : "not yet", j.last ? duration(j.last.seconds) : DASH, j.running ? "running" : j.last ? `${j.last.ok ? "" : "failed: "}${j.last.detail}` : DASH,
    j.last_success ? when(j.last_success, zone, now) : DASH, j.next_run ? when(j.next_run, zone, now) : "on demand"]), "Jobs")
    : el("p", { class: "quiet" }, "No schedule runs here.")));
}
