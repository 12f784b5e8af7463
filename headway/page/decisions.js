// What was decided and why: the timeline, one decision in full with its replay, and the plan that stands now.
import { get } from "/page/api.js";
import { $, box, el, fill, stamp, table } from "/page/dom.js";
import { dayTime, members, ms, number, rate, whole } from "/page/format.js";

const VERIFIED = { effective: "it worked", ineffective: "it did not work", superseded: "a later change took its place", pending: "not known yet", failed: "it could not be asked for" };
const CHOICES = { chosen: "chosen", hold: "stay", one_less: "one less", one_more: "one more" };

/** What else could have been done, cheapest first, each with what it would cost in paid member-hours. */
function alternatives(list, chosen) {
  if (!list?.length) return null;
  const total = (a) => a.paid_hours + a.rescale_hours, same = new Map();
  for (const a of list) { // what was chosen is often one of the others: they share a row
    const key = [a.replicas, a.paid_hours, a.rescale_hours, a.late_records].join();
    same.set(key, { ...a, names: [...(same.get(key)?.names ?? []), CHOICES[a.choice] ?? a.choice].filter(Boolean) });
  }
  const rows = [...same.values()].sort((a, b) => total(a) - total(b)).map((a) => {
    const mine = a.names.includes("chosen") || (!a.names.length && a.replicas === chosen), text = a.names.join(", ") || (mine ? "chosen" : "");
    return [mine ? el("b", {}, text) : text, mine ? el("b", {}, String(a.replicas)) : a.replicas, number(a.paid_hours), number(a.rescale_hours), number(a.late_records), number(total(a))];
  });
  return table(["Choice", "#Members", "#Paid hours", "#Rescale cost", "#Late, expected", "#Total cost"], rows, "Alternatives and their cost in member-hours");
}
export function drawPlan(g, plan) {
  const zone = g.timezone, now = ms(g.now);
  fill($("plan"), box("Plan",
    plan.reasons.length ? el("p", {}, plan.reasons.slice(0, 4).join("; "), ".") : null,
    plan.proposals?.length ? el("p", {}, ...plan.proposals.map((p) => el("span", { class: "one" }, p.text))) : null,
    plan.steps.length ? table(["From", "#Members", "#For, records/s"], plan.steps.slice(0, 48).map((s) => [stamp(s.from, zone, now), s.replicas, number(s.demand)]), "Plan") : null,
    plan.alternatives?.length ? el("h4", {}, "Alternatives now") : null, alternatives(plan.alternatives, plan.replicas)));
}
/** The changes, newest first; `chosen` is the instant of the one that the address names. */
export function drawTimeline(g, body, chosen, toggled) {
  const zone = g.timezone, now = ms(g.now), changes = [...body.changes].reverse().slice(0, 120);
  const before = new Map(changes.map((c, i) => [c.at, changes[i + 1]?.replicas]));
  const rows = changes.map((c) => {
    const was = before.get(c.at), what = c.hold ? "holds" : was === undefined || was === c.replicas ? members(c.replicas) : `${was} → ${c.replicas}`;
    return el("li", {}, el("details", { "data-at": c.at }, el("summary", {}, stamp(c.at, zone, now),
      el("b", {}, what), el("span", {}, c.reason ?? "no reason was kept")), el("div", { class: "full" }, "reading …")));
  });
  const list = rows.length ? el("ul", { class: "timeline" }, ...rows) : el("p", { class: "quiet" }, `No decision changed anything in this range. ${g.replicas.planned === null
    ? "The first one comes with the first plan." : "A longer range shows earlier ones."}`);
  if ($("timeline").querySelector("details[open]") && $("timeline").dataset.group === g.group) return; // somebody is reading: nothing moves under their eyes
  $("timeline").dataset.group = g.group;
  fill($("timeline"), box("Decisions", list));
  for (const details of $("timeline").querySelectorAll("details")) details.ontoggle = () => toggled(details);
  const named = chosen && $("timeline").querySelector(`details[data-at="${CSS.escape(chosen)}"]`);
  if (named) named.open = true;
}
/** Everything about one decision: facts, reasons, alternatives, what came of it, what was to follow, replay. */
export function decision(g, d) {
  const zone = g.timezone, i = d.inputs ?? {}, acted = d.actuation;
  const facts = [`mode ${d.mode}`, `${whole(i.working)} working of ${whole(i.replicas)} requested`, `lag ${number(i.lag)}`, `arrivals ${rate(i.arrival_rate)}`,
    d.bound_by.kind === "none" ? "nothing held it back" : `bound by ${d.bound_by.kind} ${d.bound_by.id ?? ""}`];
  const asked = acted && (acted.previous === acted.replicas ? `${members(acted.replicas)} asked for` : `${whole(acted.previous)} → ${members(acted.replicas)} asked for`);
  const others = alternatives(d.alternatives ?? d.plan?.alternatives, d.replicas);
  const part = (head, ...content) => [el("dt", {}, head), el("dd", {}, ...content)];
  const again = el("span", { role: "status" }), id = d.id;
  const button = el("button", { type: "button", class: "replay" }, "Replay");
  button.onclick = async () => { button.disabled = true; again.textContent = " computing …"; again.textContent = ` ${await replay(g, id)}`; button.disabled = false; };
  return [el("dl", { class: "full-list" },
    ...part("Inputs", facts.join(" · ")),
    ...part("Reasons", el("ul", {}, ...d.reasons.map((r) => el("li", {}, r)))),
    ...(others ? part("Alternatives", others) : []),
    ...part("Acted", acted ? `${asked}.` : "Nothing was asked of the target."),
    ...(acted ? part("Verified", el("span", { class: acted.state === "ineffective" || acted.state === "failed" ? "attention" : null }, VERIFIED[acted.state] ?? acted.state), acted.detail ? `: ${acted.detail}.` : ".") : []),
    ...(d.plan ? part("Then", `${d.plan.steps.slice(1, 6).map((s) => `${s.replicas} from ${dayTime(ms(s.from), zone)}`).join(", ") || "no further step"}.`) : []),
    ...(i.knobs?.learned_on ? part("Learned", i.knobs.learned_on) : []),
    ...part("Again", button, again, el("span", { class: "two" }, "in a terminal: ", el("code", {}, `headway replay-decision '${d.id}'`))))];
}
/** Has the decision computed again from its kept inputs, and says whether the answer is the same. */
async function replay(g, id) {
  try {
    const done = await get(`/v1/groups/${encodeURIComponent(g.group)}/replay?id=${encodeURIComponent(id)}`);
    return done.state === "same" ? `The same answer: ${members(done.replicas)}.` : `▲ Another answer: ${members(done.replicas)}; ${done.differences.join(", ")} differ. That is a fault of ours: please report it.`;
  } catch (error) { return `Not possible: ${error.message}.`; }
}
