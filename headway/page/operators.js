// What people and the schedule do to a group: pre-scaling windows, the audit log, jobs.
import { $, box, el, fill, stamp, table } from "/page/dom.js";
import { DASH, dayTime, duration, ms } from "/page/format.js";

/** Seconds and instants as people say them: "7200s" is "2 h". */
function said(value, zone) {
  const text = String(value), seconds = /^(\d+(?:\.\d+)?)s$/.exec(text);
  if (seconds) return duration(Number(seconds[1]));
  return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(text) ? dayTime(ms(text), zone) : text;
}
const span = (w, zone) => (w.cron ? `${w.cron} (${w.timezone ?? "UTC"}) for ${said(w.duration, zone)}`
  : `${w.from ? dayTime(ms(w.from), zone) : "now"} to ${dayTime(ms(w.to ?? w.expires), zone)}`);
const asks = (w) => [w.replicas !== undefined ? `exactly ${w.replicas}` : "", w.at_least !== undefined ? `at least ${w.at_least}` : "",
  w.at_most !== undefined ? `at most ${w.at_most}` : "", w.factor !== undefined ? `${w.factor} × the forecast` : ""].filter(Boolean).join(", ");
const detail = (e, zone) => Object.entries(e.detail).filter(([k, v]) => v !== null && k !== "id").map(([k, v]) => `${k.replaceAll("_", " ")} ${said(v, zone)}`).join(", ");

export function drawOperators(g, prescale, audit, jobs, remove) {
  const zone = g.timezone, now = ms(g.now);
  const mine = prescale.windows.filter((w) => w.group === "*" || w.group === g.group);
  const text = (w) => [w.name, span(w, zone)].filter(Boolean).join(": ");
  fill($("windows"), box("Windows and events", mine.length ? table(["When", "What", "Remove"], mine.map((w) => [text(w), asks(w),
    el("button", { type: "button", "data-remove": w.id, "aria-label": `Remove ${text(w)}` }, "Remove")]), "Pre-scaling")
    : el("p", { class: "quiet" }, "None. ", el("code", {}, `headway prescale add --group ${g.group} --cron "0 8 * * 1-5" --duration 2h --at-least 9`), " adds one.")));
  for (const button of $("windows").querySelectorAll("[data-remove]")) button.onclick = () => remove(button.dataset.remove);
  const entries = audit.entries.filter((e) => e.scope === "*" || e.scope === g.group).reverse().slice(0, 60);
  fill($("entries"), box("Audit log entries", entries.length ? table(["At", "Who", "Did", "Detail"], entries.map((e) => [stamp(e.at, zone, now), e.actor, e.action, detail(e, zone)]), "Audit log")
    : el("p", { class: "quiet" }, "Nobody has changed anything yet. Modes, pauses, approvals and windows are written down here with who did it.")));
  const ours = jobs.jobs.filter((j) => j.group === null || j.group === g.group);
  fill($("schedule"), box("Jobs of the schedule", ours.length ? table(["Job", "Last run", "#Took", "Result", "Last success", "Next run"], ours.map((j) => [j.job,
    j.last ? stamp(j.last.started, zone, now) : "not yet", j.last ? duration(j.last.seconds) : DASH, j.running ? "running" : j.last ? `${j.last.ok ? "" : "failed: "}${j.last.detail}` : DASH,
    j.last_success ? stamp(j.last_success, zone, now) : DASH, j.next_run ? stamp(j.next_run, zone, now) : "on demand"]), "Jobs")
    : el("p", { class: "quiet" }, "No schedule runs here: ", el("code", {}, `headway job run plan --group ${g.group}`), " makes one pass.")));
}
