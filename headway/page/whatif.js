// What if: other assumptions in, a second plan and its cost out; nothing is changed by asking.
import { send } from "/page/api.js";
import { $, el, fill, svg, table } from "/page/dom.js";
import { DASH, dayTime, duration, members, ms, number, rate, share, ticks, when } from "/page/format.js";

const START = [10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 900];
const SLO = [5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600];

const nearest = (list, wanted) => list.reduce((best, v, i) => (Math.abs(v - wanted) < Math.abs(list[best] - wanted) ? i : best), 0);
const W = 640, H = 150, L = 34, R = 12, T = 8, B = 22;
/** Both plans over the same hours: as it is dashed, what if dotted, as in the members' chart above. */
function plans(g, as, then) {
  const start = ms(g.now), end = Math.max(...[as, then].map((p) => ms(p.steps.at(-1).from)), start + as.estimate.horizon_h * 3600e3);
  const top = Math.max(...[as, then].flatMap((p) => p.steps.map((s) => s.replicas)), 1), ceiling = top * 1.1;
  const x = (t) => L + ((W - L - R) * (t - start)) / (end - start), y = (n) => H - B - ((H - B - T) * n) / ceiling;
  const path = (p) => p.steps.map((s, i) => `${i ? "H" : "M"}${x(Math.max(ms(s.from), start)).toFixed(1)}${i ? "V" : " "}${y(s.replicas).toFixed(1)}`).join("") + `H${W - R}`;
  const label = (px, py, text, anchor) => Object.assign(svg("text", { x: px, y: py, "text-anchor": anchor }), { textContent: text });
  const levels = [...new Set([0, Math.round(top / 2), top])];
  const said = (p) => p.steps.slice(0, 12).map((s) => `${s.replicas} from ${dayTime(ms(s.from), g.timezone)}`).join(", ");
  return el("div", { class: "plans" }, el("p", { class: "legend" }, "Members: ", el("span", { class: "key" }, el("i", { class: "k-planned" }), "as it is"), " ", el("span", { class: "key" }, el("i", { class: "k-whatif" }), "what if")),
    svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `members: as it is ${said(as)}; what if ${said(then)}` },
      ...levels.flatMap((n) => [svg("line", { x1: L, x2: W - R, y1: y(n), y2: y(n), class: "axis" }), label(L - 6, y(n) + 3.5, String(n), "end")]),
      ...ticks(start, end, g.timezone, 7).map(([t, text]) => label(x(t), H - 6, text, "middle")),
      svg("path", { d: path(as), class: "p-as" }), svg("path", { d: path(then), class: "p-then" })));
}

export class WhatIf {
  constructor(drawn) { this.drawn = drawn; this.group = null; this.timer = null; }

  /** Builds the sliders of a group, at what holds now. */
  open(g) {
    this.now = g;
    if (this.group === g.group) return;
    this.group = g.group;
    this.answer = el("div", { class: "answer", "aria-live": "polite" }, el("p", { class: "quiet" }, "Move a slider: the plan is made again under that assumption, and drawn dotted over the members. Nothing is changed."));
    const capacity = this.slider("capacity", "One member takes", 0.25, 3, 0.05, 1, (v) => (this.now.capacity_per_member ? rate(v * this.now.capacity_per_member) : `${v} × (not known yet)`));
    const load = this.slider("load", "Load", 0.5, 4, 0.05, 1, (v) => `${v.toFixed(2)} × the forecast`);
    const start = this.slider("start", "A member starts in", 0, START.length - 1, 1, nearest(START, g.lead_time_s ?? 120), (i) => duration(START[i]));
    const slo = this.slider("slo", "Late after", 0, SLO.length - 1, 1, nearest(SLO, g.slo_s), (i) => duration(SLO[i]));
    fill($("whatif-body"));
    $("whatif-body").replaceChildren(el("div", { class: "box", style: "max-height:none" }, el("div", { class: "sliders" }, capacity, load, start, slo), this.answer));
  }

  slider(name, text, min, max, step, value, words) {
    const output = el("output", { for: `whatif-${name}` }, words(value)), input = el("input", { id: `whatif-${name}`, type: "range", min, max, step, value });
    input.value = value;
    input.setAttribute("aria-valuetext", words(value));
    input.addEventListener("input", () => {
      output.textContent = words(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
      input.dataset.touched = "yes";
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), 250);
    });
    return el("label", {}, text, output, input);
  }

  body() {
    const of = (name) => { const i = $(`whatif-${name}`); return i.dataset.touched ? Number(i.value) : null; };
    const capacity = of("capacity"), load = of("load"), start = of("start"), slo = of("slo"), policy = {};
    if (start !== null) policy.lead_time = `${START[start]}s`;
    if (slo !== null) policy.slo = `${SLO[slo]}s`;
    return { policy, ...(capacity !== null && this.now.capacity_per_member ? { capacity: capacity * this.now.capacity_per_member } : {}),
      ...(load !== null ? { demand_factor: load } : {}) };
  }

  async ask() {
    const g = this.now, path = `/v1/groups/${encodeURIComponent(g.group)}/plan`;
    const mine = (this.asked = (this.asked ?? 0) + 1), key = `${g.group} ${g.now}`;
    fill(this.answer, el("p", { class: "quiet" }, "Planning …"));
    try {
      if (this.base?.key !== key) this.base = { key, plan: await send("POST", path, {}) };
      const as = this.base.plan, then = await send("POST", path, this.body());
      if (this.group !== g.group || mine !== this.asked) return;
      const zone = g.timezone, now = ms(g.now), most = (p) => Math.max(...p.steps.map((s) => s.replicas));
      const first = (p) => { const s = p.steps.find((x, i) => i > 0 && x.replicas !== p.steps[i - 1].replicas); return s ? `${members(s.replicas)} at ${when(s.from, zone, now)}` : "none"; };
      const rows = [["Members now", as.replicas, then.replicas], ["Most members", most(as), most(then)], ["Next change", first(as), first(then)],
        [`Member-hours, ${number(as.estimate.horizon_h)} h ahead`, number(as.estimate.member_hours), number(then.estimate.member_hours)],
        ["Expected beyond capacity", share(as.estimate.late_share, 3), share(then.estimate.late_share, 3)],
        ...(as.estimate.cost === null ? [] : [[`Cost, at ${number(g.price_per_member_hour)} a member-hour`, number(as.estimate.cost), number(then.estimate.cost)]])];
      const more = then.estimate.member_hours - as.estimate.member_hours;
      const said = Math.abs(more) < 0.05 ? "It would cost the same." : `It would cost ${number(Math.abs(more))} member-hours ${more > 0 ? "more" : "less"} (${share(Math.abs(more) / Math.max(as.estimate.member_hours, 1e-9))}).`;
      const why = then.estimate.why ?? then.reasons[0] ?? DASH;
      fill(this.answer, el("p", {}, `${said} ${then.hold ? "The plan would hold. " : ""}${why}`),
        el("div", { class: "beside" }, plans(g, as, then), table(["Figure", "#As it is", "#What if"], rows, "What if")));
      this.drawn(then.steps);
    } catch (error) {
      fill(this.answer, el("p", { class: "attention" }, error.status === 429 ? "Other what-ifs are under way; move the slider again in a moment." : `Not possible: ${error.message}`));
    }
  }
}
