// Partitions beside the heat map: those that grow too hot, who owns what, and what moved.
import { $, box, el, fill, stamp, svg, table } from "/page/dom.js";
import { dayTime, duration, members, ms, number, plural, rate, share } from "/page/format.js";
import { HEAT, HEAT_WORDS } from "/page/heatmap.js";

const ROWS = 64, ARROWS = 24, ROW = 16, GUTTER = 30;

export function drawPartitions(g, d) {
  key(g, d.heat);
  hot(g, d.heat);
  owners(g, d.assignment, d.plan);
  moves(g, d);
}
function key(g, heat) {
  const lag = heat?.name === "lag";
  if (heat.lost) {
    $("heat-unit").textContent = "not read";
    fill($("heat-key"), el("span", {}, el("i", { class: "k-gap" }), "not known"));
    return;
  }
  $("heat-unit").textContent = lag ? "lag, share of the largest" : heat?.capacity_per_member ? "share of one member's capacity"
    : `share of the busiest${g.cap_at_partitions ? " (capacity is not known yet)" : ""}`;
  const words = heat?.capacity_per_member && !lag ? HEAT_WORDS : HEAT_WORDS.slice(0, -1);
  fill($("heat-key"), ...words.map((word, i) => el("span", {}, el("i", { style: `background: var(${HEAT[i]})` }), word)),
    heat?.hot?.some((h) => h.saturates_at) ? el("span", {}, el("b", { class: "k-mark", "aria-hidden": "true" }, "◆"), " outgrows a member") : null,
    el("span", {}, el("i", { class: "k-gap" }), "not known"));
}
function hot(g, heat) {
  const zone = g.timezone, now = ms(g.now), list = heat?.hot ?? [], soon = list.filter((h) => h.saturates_at);
  const said = heat.lost ? "Not read: nothing is known of the partitions now." : !g.cap_at_partitions ? "Members share every partition of this group: none can outgrow one of them."
    : soon.length ? `Partition ${soon[0].partition} outgrows one member ${ms(soon[0].saturates_at) <= now ? "now" : `from ${dayTime(ms(soon[0].saturates_at), zone)}`}: more members will not help it; headway split or a faster member will.`
      : list.length ? "No partition outgrows one member within the forecast." : "Shown as soon as there is a forecast of the partitions.";
  const heavy = (h) => (h.share === null ? share(null) : el("span", { class: h.share > 1 ? "attention" : h.share > 0.8 ? "acting" : null }, `${h.share > 1 ? "▲ " : ""}${share(h.share)}`));
  fill($("hot"), box("Hot partitions", el("p", {}, said), list.length ? table(["#Part.", "#Rec/s", "#Peak, q95", "#Of a member", "Saturates"],
    list.slice(0, 8).map((h) => [h.partition, number(h.rate), number(h.peak), heavy(h), h.saturates_at ? stamp(h.saturates_at, zone, now) : "no"]), "Hot partitions") : null));
}
/** The last change of owners that was seen: all that moved at its instant. */
function lastChange(a) {
  const changes = a.changes ?? [], at = changes.at(-1)?.at;
  return changes.filter((c) => c.at === at);
}
const plannedMoves = (plan) => (plan.steps ?? []).flatMap((s) => s.movement.map((m) => ({ ...m, at: s.from })));

function owners(g, a, plan) {
  if (!a.members || !a.members.length) {
    fill($("owners"), box("Owners", el("p", { class: "quiet" }, a.why ?? "No member is seen: the group is empty, or arrivals come without a cluster that could be asked.")));
    return;
  }
  if (!g.cap_at_partitions) {
    const ready = a.members.filter((m) => m.ready).length;
    fill($("owners"), box("Owners", el("p", {}, `${members(ready)} work and share all partitions; ${plural(a.members.length - ready, "member")} starting.`)));
    return;
  }
  const able = a.capacity_per_member, most = Math.max(able ?? 0, ...a.members.map((m) => m.load ?? 0), 1e-9);
  const shown = a.members.slice(0, ROWS), place = new Map(shown.map((m, i) => [m.id, i]));
  const last = lastChange(a), planned = plannedMoves(plan);
  const arrows = [...last.map((m) => ({ ...m, kind: "moved" })), ...planned.map((m) => ({ ...m, kind: "planned" }))].filter((m) => place.has(m.target)).slice(0, ARROWS);
  const zone = g.timezone, now = ms(g.now);
  const said = [`${members(a.members.length)}${a.skew === null ? "" : `, the busiest carries ${number(a.skew)} times the mean`}`,
    a.unowned.length ? `${plural(a.unowned.length, "partition")} without an owner` : null, able ? "the dashed mark is one member's capacity" : null].filter(Boolean);
  const moved = [last.length ? ["Arrows: the last change, ", stamp(last[0].at, zone, now), ` (${plural(last.length, "partition")})`] : [],
    planned.length ? [last.length ? "; dashed: " : "Dashed arrows: ", `planned (${plural(planned.length, "partition")})`] : []].flat();
  fill($("owners"), box("Owners", el("p", {}, `${said.join("; ")}.`, ...(moved.length ? [" ", ...moved, "."] : [])),
    el("div", { class: "owners" }, ...shown.flatMap((m) => line(m, able, most)), arrows.length ? bows(arrows, place, shown.length) : null),
    a.members.length > ROWS ? el("p", { class: "quiet" }, `and ${a.members.length - ROWS} more; all of them are in the call above`) : null,
    el("details", { class: "as-table" }, el("summary", {}, "As a table"), table(["Member", "#Load, records/s", "#Of its capacity", "Partitions"],
      shown.map((m) => [m.id, number(m.load), able && m.load !== null ? share(m.load / able, 0) : share(null), m.partitions.map((p) => `${p.topic}:${p.partition}`).join(", ") || "none"]), "Owners"))));
}
function line(m, able, most) {
  const width = 200;
  let x = 0;
  const parts = [...m.partitions].sort((p, q) => (q.rate ?? 0) - (p.rate ?? 0)).map((p, i) => {
    const w = (width * (p.rate ?? 0)) / most, made = svg("rect", { x, y: 0, width: Math.max(w, 0.4), height: 14, class: able && p.rate > able ? "over" : `b${i % 2}` },
      Object.assign(svg("title"), { textContent: `${p.topic}:${p.partition} ${rate(p.rate)}` }));
    x += w;
    return made;
  });
  if (able) parts.push(svg("line", { x1: (width * able) / most, x2: (width * able) / most, y1: 0, y2: 14, class: "limit" }));
  const state = m.draining ? "leaving" : m.ready ? "" : "starting";
  return [el("span", { class: "o-name", title: m.id }, m.id),
    svg("svg", { viewBox: `0 0 ${width} 14`, preserveAspectRatio: "none", class: "bar", role: "img", "aria-label": `${m.id}: ${plural(m.partitions.length, "partition")}, ${rate(m.load)}` }, ...parts),
    el("span", { class: "o-load n" }, state || (able && m.load !== null ? share(m.load / able, 0) : number(m.load)))];
}
/** Arrows from the row of who gave to the row of who got; each bows out the further the longer it is. */
function bows(arrows, place, count) {
  const y = (id) => ROW * (place.get(id) + 0.5);
  const drawn = arrows.map((m, i) => {
    const to = y(m.target), from = place.has(m.source) ? y(m.source) : null, nudge = (i % 4) * 1.2;
    const bow = from === null ? 0 : Math.min(6 + 0.28 * Math.abs(to - from) + nudge, GUTTER - 2);
    const d = from === null ? `M${GUTTER - 1} ${to}H5` : `M2 ${from - 2 + nudge}C${bow * 1.3} ${from} ${bow * 1.3} ${to} 5 ${to - 2 + nudge}`;
    return svg("path", { d, class: `arrow ${m.kind}`, "marker-end": `url(#head-${m.kind})` }, Object.assign(svg("title"), { textContent: `${m.partition}: ${m.source ?? "nobody"} → ${m.target}` }));
  });
  const head = (kind) => svg("marker", { id: `head-${kind}`, viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto" }, svg("path", { d: "M0 0L6 3L0 6Z", class: `arrowhead ${kind}` }));
  const text = arrows.map((m) => `${m.partition} ${m.kind === "planned" ? "is planned to move" : "moved"} from ${m.source ?? "nobody"} to ${m.target}`).join("; ");
  return svg("svg", { viewBox: `0 0 ${GUTTER} ${ROW * count}`, class: "arrows", style: `grid-row: 1 / span ${count}`, role: "img", "aria-label": text }, svg("defs", {}, head("moved"), head("planned")), ...drawn);
}
function moves(g, d) {
  const zone = g.timezone, now = ms(g.now);
  const under = d.moves?.moves ?? [], changes = [...(d.assignment.changes ?? [])].reverse();
  const line = (m) => [stamp(m.at ?? g.now, zone, now), m.partition, `${m.source ?? "nobody"} → ${m.target}`, m.state ?? "done"];
  const handed = (m) => line({ ...m, at: typeof m.at === "number" ? new Date(m.at * 1000).toISOString() : m.at, source: m.from, target: m.to,
    state: `${m.state}${m.seconds === null ? "" : `, ${duration(m.seconds)}`}${m.detail ? `: ${m.detail}` : ""}` });
  const rows = [...under.slice(0, 60).map(handed), ...plannedMoves(d.plan).slice(0, 20).map((m) => line({ ...m, state: "planned" })), ...changes.slice(0, 40).map(line)];
  fill($("moves"), box("Moves", rows.length ? table(["At", "Partition", "From → to", "State"], rows, "Moves") : el("p", { class: "quiet" },
    d.assignment.members === null ? d.assignment.why : "No partition changed its owner in this range, and none is about to.")));
}
