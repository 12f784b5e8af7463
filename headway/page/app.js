// The page: reads the public API, keeps its state in the URL, and redraws when data moved.
import { get, listen, send } from "/page/api.js";
import { bokeh, NONE, Stack } from "/page/charts.js";
import { decision, drawPlan, drawTimeline } from "/page/decisions.js";
import { $, box, el, fill } from "/page/dom.js";
import { duration, hhmm, ms, utc, when } from "/page/format.js";
import { ahead, asTable, calls, drawHead, HOUR, readout, series } from "/page/group.js";
import { drawOperators } from "/page/operators.js";
import { drawOverview } from "/page/overview.js";
import { drawPartitions } from "/page/owners.js";
import { drawQuality } from "/page/quality.js";
import { WhatIf } from "/page/whatif.js";

const RANGES = [[6, "6 h"], [24, "24 h"], [72, "3 days"], [168, "7 days"]], SLOW_MS = 8000;
const MODES = { off: "nothing is planned and nothing is changed", recommend: "plans are made and shown; nothing is changed",
  shadow: "as recommend, and what would have been done is scored; nothing is changed", act: "plans are carried out: members are added and removed" };
let body = null, stack = null, drawn = null, data = null, slow = null, slowAt = 0, cursor = null, row = null, zoomed = false, opened = null;

// -- the URL holds what is looked at ---------------------------------------------------------------------------
const url = () => new URLSearchParams(location.hash.slice(1));
const view = () => { const u = url(); return { group: u.get("group"), hours: Number(u.get("hours")) || 24, tab: u.get("tab"), topic: u.get("topic"), lead: u.get("expected") ?? "", decision: u.get("decision"), zoom: u.get("zoom"),
  heat: u.get("heat") === "lag" ? "lag" : "arrivals", order: u.get("order") === "number" ? "number" : "load" }; };
function go(changes, replace = false) {
  const u = url();
  for (const [k, v] of Object.entries(changes)) if (v === null || v === "") u.delete(k); else u.set(k, v);
  const hash = `#${u}`;
  if (replace) history.replaceState(null, "", hash); else if (location.hash !== hash) location.hash = hash;
}
const failed = new Map();
const link = (group) => `#group=${encodeURIComponent(group)}&hours=${view().hours}`;

// -- drawing ---------------------------------------------------------------------------------------------------
let busy = false, again = false, timer = null;
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    body = await get("/v1/overview");
    await draw();
    state(true);
  } catch (error) {
    state(false, error.message);
  } finally {
    busy = false;
    if (again) { again = false; soon(); }
  }
}
const soon = () => { timer ??= setTimeout(() => { timer = null; refresh(); }, 1000); };
let lastGood = null, live = "connecting";
/** Says how fresh the page is: a word at the top while all is well, a line under it while it is not: since when, why, what to do. */
function state(good, why) {
  if (good) lastGood = Date.now();
  const since = lastGood ? `${utc(lastGood).slice(11)} (${duration((Date.now() - lastGood) / 1000)})` : "the start";
  const stale = !good && Boolean(why);
  if (!stale) $("link").textContent = `${live === "live" ? "● live" : "○ asking every 10 s"} · ${hhmm(ms(body.now), "UTC")} UTC`;
  else $("link").textContent = "▲ not up to date";
  $("link").className = stale ? "attention" : "quiet";
  $("stale").hidden = !stale;
  if (stale) $("stale").textContent = `Not up to date since ${since}: ${why}. ${body ? "What stands here is the last answer. " : ""}It is asked again every 10 s; is headway serve running, and can this machine reach it?`;
}
let chain = Promise.resolve();
/** Draws one after the other: two at a time would build the charts twice. */
const draw = () => (chain = chain.then(drawNow, drawNow));
async function drawNow() {
  const v = view(), chosen = v.group ? body.groups.find((g) => g.group === v.group) : null;
  $("overview").hidden = Boolean(v.group);
  $("group").hidden = !v.group;
  drawOverview(body, link);
  if (!v.group) { opened = null; return; }
  $("group").classList.toggle("gone", !chosen);
  if (!chosen) {
    opened = null;
    $("group-title").textContent = v.group;
    $("sentence").textContent = `There is no group of this name here (any more). ${body.groups.length ? `Watched now: ${body.groups.slice(0, 20).map((g) => g.group).join(", ")}.` : "No group is watched."} headway init lists those of the cluster.`;
    document.title = `${v.group} · Headway`;
    return;
  }
  document.title = `${chosen.group} · Headway`;
  await group(chosen, v);
}
async function group(g, v) {
  const fresh = opened !== g.group;
  if (fresh) {
    opened = g.group;
    drawHead(g, v.topic, null);
    for (const id of ["hot", "owners", "moves", "timeline", "plan", "quality", "windows", "entries", "schedule"]) fill($(id), box(id, el("p", { class: "quiet" }, "Reading …")));
    slow = data = row = null;
    delete $("stack").dataset.ready;
    zoomed = false;
    stack = null;
    modes(g);
  }
  const { fast, slow: rest } = calls(g, v);
  const ready = bokeh();
  const missing = [];
  const all = async (list) => Object.fromEntries(await Promise.all(Object.entries(list).map(async ([k, path]) =>
    [k, await get(path).then((found) => { failed.delete(k); return found; }, (error) => {
      failed.set(k, { since: failed.get(k)?.since ?? g.now, why: error.message });
      missing.push(`${k}: ${error.message}`);
      return nothing(k, g);
    })])));
  const key = JSON.stringify([v.hours, v.heat, v.topic, g.group]);
  const stale = !slow || slow.key !== key || performance.now() - slowAt > SLOW_MS;
  const [quick, late] = await Promise.all([all(fast), stale ? all(rest) : slow]);
  if (view().group !== g.group) return;
  if (stale) { slow = { ...late, key }; slowAt = performance.now(); }
  data = { ...quick, ...slow };
  drawHead(g, v.topic, data.forecast, missing);
  modes(g);
  drawn = { g, s: series(g, data, v) };
  controls(g, v);
  if (stale) {
    drawTimeline(g, data.timeline, v.decision, (details) => {
      if (details.open) openDecision(g, details);
      go({ decision: details.open ? details.dataset.at : null }, true);
    });
    drawQuality(g, data.quality);
    drawOperators(g, data.prescale, data.audit, data.jobs, removeWindow);
  }
  drawPartitions(g, data);
  drawPlan(g, data.plan);
  whatif.open(g);
  sources({ ...fast, ...rest, whatif: `/v1/groups/${encodeURIComponent(g.group)}/plan` }, g);
  $("no-charts").hidden = await ready;
  if (await ready) await charts(g, v, stale);
  tables();
  if (fresh && v.tab) show(v.tab);
}
/** What a panel is drawn from when its call failed: nothing is known, and the line above says why. */
function nothing(name, g) {
  const series = { from: g.now, step_s: 60, resolution_s: 60, values: [], points: [], lost: true };
  return { arrivals: series, lag: series, members: series, delay: series, expected: series,
    forecast: { total: null, reasons: ["not read"], possible_from: null }, plan: { steps: [], reasons: [] },
    assignment: { members: null, unowned: [], skew: null, changes: [], why: "Not read." }, windows: { windows: [] },
    heat: { name: "arrivals", from: g.now, step_s: 60, partitions: [], values: [], hot: [], ahead: null, lost: true }, timeline: { changes: [] },
    quality: { leads: [], why: "Not read." }, moves: { moves: [] }, prescale: { windows: [] }, audit: { entries: [] }, jobs: { jobs: [] } }[name];
}
async function charts(g, v, stale) {
  const now = ms(g.now);
  const built = !stack || stack.zone !== g.timezone;
  if (built) {
    stack = new Stack(g.timezone, () => { place(); keepZoom(); });
    stack.setRange(now - v.hours * HOUR, now + ahead(v));
    await stack.show();
  }
  const [left, right] = /^\d+-\d+$/.test(v.zoom ?? "") ? v.zoom.split("-").map((s) => 1000 * Number(s)) : [0, 0];
  if (right > left && (built || v.zoom !== kept)) { zoomed = true; kept = v.zoom; stack.setRange(left, right); }
  else if (!zoomed) stack.setRange(now - v.hours * HOUR, now + ahead(v));
  const { spans, holes, ...lines } = drawn.s;
  Object.assign(stack.data, { spans, holes });
  stack.setNow(now);
  stack.set(v.lead === "at" ? without(lines, "expected", "expectedHigh") : lines);
  if (stale || built) stack.rows = stack.heat.draw(data.heat, v.order, (at) => when(at, g.timezone, now), now);
  $("stack").dataset.ready = "yes";
  place();
}
const without = (o, ...keys) => Object.fromEntries(Object.entries(o).filter(([k]) => !keys.includes(k)));
/** Under each panel the call that feeds it; of one that failed since when, why, and when it is asked again. */
function sources(paths, g) {
  for (const place of document.querySelectorAll("[data-calls]")) {
    const names = place.dataset.calls.split(" ").filter((name) => paths[name]);
    const text = (path) => { const [base, query] = path.split("?"), name = /(^|&)name=(\w+)/.exec(query ?? ""); return name ? `${base}?name=${name[2]}` : base; };
    const lost = names.filter((name) => failed.has(name)).map((name) => {
      const { since, why } = failed.get(name);
      return el("strong", { class: "attention lost" }, `▲ ${name} not read since ${when(since, g.timezone, ms(g.now))}: ${why}. Asked again within 10 s. `);
    });
    fill(place, ...lost, place.dataset.method ?? "GET", " ", ...names.flatMap((name, i) => [i ? " · " : "", place.dataset.method ? text(paths[name]) : el("a", { href: paths[name] }, text(paths[name]))]));
  }
}
function tables() {
  for (const details of document.querySelectorAll("details.as-table[data-panel]")) {
    if (!details.open || !drawn) continue;
    details.querySelector("div")?.remove();
    details.append(el("div", { tabindex: "0", role: "group", "aria-label": `${details.dataset.panel} as a table` }, asTable(details.dataset.panel, drawn.g, drawn.s, data)));
  }
}
async function openDecision(g, details) {
  const place = details.querySelector(".full");
  try {
    const found = await get(`/v1/groups/${encodeURIComponent(g.group)}/decisions?since=${encodeURIComponent(details.dataset.at)}&limit=1&inputs=true`);
    place.replaceChildren(...(found.decisions.length ? decision(g, found.decisions[0]).filter(Boolean) : ["It is no longer kept."]));
  } catch (error) { place.textContent = `Not possible now: ${error.message}`; }
}

// -- the cursor on the axis ------------------------------------------------------------------------------------
function place() {
  if (!stack || !drawn) return;
  const [left, right] = stack.frame, { start, end } = stack.range;
  const line = $("cursor");
  const seen = cursor !== null && cursor >= start && cursor <= end;
  line.style.visibility = seen ? "visible" : "hidden";
  if (seen) line.style.transform = `translateX(${left + ((right - left) * (cursor - start)) / (end - start)}px)`;
}
function setCursor(t, r = row) {
  cursor = t;
  row = r;
  place();
  const partitions = row === null ? null : stack?.rows?.groups[row];
  $("readout").textContent = readout(drawn.g, drawn.s, t, partitions ? { heat: data.heat, partitions } : null);
}
let moving = null, edge = null;
$("stack").addEventListener("pointerenter", () => { edge = null; });
$("stack").addEventListener("pointermove", (event) => {
  if (!stack || !drawn) return;
  edge ??= $("stack").getBoundingClientRect().left; // measured once: asking again would lay the page out at every move
  const x = event.clientX - edge, over = event.target.closest?.("#chart-heat"), y = over ? event.clientY - over.getBoundingClientRect().top : null;
  moving ??= requestAnimationFrame(() => {
    moving = null;
    if (!stack) return;
    const [left, right] = stack.frame, { start, end } = stack.range;
    if (x >= left && x <= right) setCursor(start + ((end - start) * (x - left)) / (right - left), y === null ? null : stack.rowAt(y));
  });
});
let asked = 0;
$("stack").addEventListener("click", async () => {
  if (!stack || cursor === null || view().lead !== "at") return;
  const mine = ++asked, g = drawn.g;
  const found = await get(`/v1/groups/${encodeURIComponent(g.group)}/expected?origin=${new Date(cursor).toISOString()}`);
  if (mine !== asked || !stack) return;
  const x = found.points.map((p) => ms(p.at)), y = (key) => found.points.map((p) => p[key] ?? NaN);
  Object.assign(drawn.s, { expected: { x, y: y("median") }, expectedHigh: { x, y: y("high") } });
  stack.set({ expected: drawn.s.expected, expectedHigh: drawn.s.expectedHigh });
  $("readout").textContent = found.points.length ? `What was expected at ${hhmm(ms(found.origin), g.timezone)}, drawn in amber` : "No forecast of that time is kept; a week is kept from the first start on.";
});
let kept = null, keeping = null;
/** What is zoomed to stands in the address, once it stands still. */
function keepZoom() {
  clearTimeout(keeping);
  keeping = setTimeout(() => {
    if (!stack || !zoomed) return;
    kept = `${Math.round(stack.range.start / 1000)}-${Math.round(stack.range.end / 1000)}`;
    go({ zoom: kept }, true);
  }, 400);
}
function zoom(how) {
  if (!stack || !drawn) return;
  const { start, end } = stack.range, v = view(), now = ms(drawn.g.now);
  if (how === "reset") { zoomed = false; go({ zoom: null }, true); stack.setRange(now - v.hours * HOUR, now + ahead(v)); return; }
  const middle = cursor ?? (start + end) / 2, factor = how === "in" ? 0.6 : 1 / 0.6;
  zoomed = true;
  stack.setRange(middle - (middle - start) * factor, middle + (end - middle) * factor);
}

// -- controls --------------------------------------------------------------------------------------------------
for (const [hours, text] of RANGES) $("ranges").append(el("button", { type: "button", "data-hours": hours, onclick: () => { zoomed = false; go({ hours, zoom: null }); } }, text));
function controls(g, v) {
  for (const b of $("ranges").children) b.setAttribute("aria-pressed", String(Number(b.dataset.hours) === v.hours));
  $("expected-lead").value = v.lead;
  $("heat-name").value = v.heat;
  $("heat-order").value = v.order;
  $("expected-key").hidden = !v.lead;
  $("back").href = `#hours=${v.hours}`;
  for (const a of document.querySelectorAll(".sections a")) {
    a.href = `${link(g.group)}&tab=${a.dataset.tab}`;
    if ((v.tab ?? "now") === a.dataset.tab) a.setAttribute("aria-current", "true"); else a.removeAttribute("aria-current");
  }
}
$("expected-lead").addEventListener("change", (e) => go({ expected: e.target.value }));
$("heat-name").addEventListener("change", (e) => go({ heat: e.target.value }));
$("heat-order").addEventListener("change", (e) => { slowAt = 0; slow = null; go({ order: e.target.value }); });
document.querySelector(".axis-tools").addEventListener("click", (e) => { if (e.target.dataset.zoom) zoom(e.target.dataset.zoom); });
$("stack").addEventListener("pointerdown", () => { zoomed = true; });
document.addEventListener("toggle", (e) => { if (e.target.matches?.("details.as-table[data-panel]")) tables(); }, true);
function show(tab) { $(tab)?.scrollIntoView({ block: "start" }); }
document.querySelector(".sections").addEventListener("click", (e) => { if (e.target.dataset.tab) setTimeout(() => show(e.target.dataset.tab), 0); });

function confirm(title, text) {
  const dialog = $("confirm-dialog");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}
async function change(title, text, work) {
  if (!(await confirm(title, text))) { // the switch goes back at once
    if (drawn) modes(drawn.g);
    return;
  }
  try { await work(); } catch (error) { await confirm("That was refused", error.message); }
  slow = null;
  refresh();
}
function modes(g) {
  if (document.activeElement?.name === "mode") return;
  const base = `/v1/groups/${encodeURIComponent(g.group)}`;
  const choose = (mode) => change(`Set ${g.group} to ${mode}?`, `In ${mode}, ${MODES[mode]}. It is written to the audit log.`, () => send("PUT", `${base}/mode`, { mode }));
  const choice = (mode) => el("label", { title: MODES[mode] }, el("input", { type: "radio", name: "mode", value: mode, onchange: () => { document.activeElement.blur(); choose(mode); } }), mode);
  if ($("modes").dataset.group !== g.group) {
    $("modes").replaceChildren(el("legend", {}, "Mode"), ...Object.keys(MODES).map(choice));
    $("modes").dataset.group = g.group;
  }
  for (const input of $("modes").querySelectorAll("input")) input.checked = input.value === g.mode;
  $("pause").textContent = g.paused ? "Resume" : "Pause 2 h";
  $("pause").onclick = () => (g.paused ? change(`Resume ${g.group}?`, "Plans are carried out again as the mode says.", () => send("PUT", `${base}/pause`, { paused: false }))
    : change(`Pause ${g.group} for two hours?`, "Members stay as they are; plans go on being made and shown.", () => send("PUT", `${base}/pause`, { for: "2h" })));
  $("mode-means").textContent = `${g.paused ? `paused${g.paused_until ? ` until ${when(g.paused_until, g.timezone, ms(g.now))}` : ""}; ` : ""}${g.mode}: ${MODES[g.mode]}`;
  $("approve").hidden = !(g.needs_approval && g.replicas.planned !== null && g.replicas.planned !== g.replicas.requested);
  $("approve").onclick = () => change(`Approve ${g.replicas.planned} members for ${g.group}?`, "The approval holds for one hour.", () => send("POST", `${base}/approvals`, {}));
}
function removeWindow(id) {
  change("Remove this window?", "From now on it asks for nothing.", () => send("DELETE", `/v1/prescale?id=${encodeURIComponent(id)}`, {}));
}
const whatif = new WhatIf((steps) => {
  if (!stack || !drawn) return;
  const now = ms(drawn.g.now), end = now + ahead(view());
  $("whatif-key").hidden = false;
  stack.set({ whatif: steps.length ? { x: [...steps.map((s) => Math.max(ms(s.from), now)), end], y: [...steps.map((s) => s.replicas), steps.at(-1).replicas] } : NONE });
});

// -- theme, keys -----------------------------------------------------------------------------------------------
const THEMES = ["system", "light", "dark"], theme = () => localStorage.getItem("theme") ?? "system";
function nextTheme() {
  const name = THEMES[(THEMES.indexOf(theme()) + 1) % 3];
  localStorage.setItem("theme", name);
  if (name === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  $("theme").textContent = `Theme: ${name}`;
  restyle();
}
function restyle() { stack = null; if (body) draw(); }
$("theme").textContent = `Theme: ${theme()}`;
$("theme").addEventListener("click", nextTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
matchMedia("(max-width: 720px)").addEventListener("change", restyle);
$("keys").addEventListener("click", () => $("keys-dialog").showModal());
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  const open = view().group, names = body?.groups.map((g) => g.group) ?? [];
  if (event.key === "?") $("keys-dialog").showModal();
  else if (event.key === "t") nextTheme();
  else if (event.key === "Escape" && open) go({ group: null, tab: null, decision: null, topic: null, zoom: null });
  else if ((event.key === "j" || event.key === "k") && names.length) {
    const by = event.key === "j" ? 1 : -1;
    if (open) go({ group: names[(names.indexOf(open) + by + names.length) % names.length] });
    else {
      const links = [...document.querySelectorAll("#groups tbody a")], at = links.indexOf(document.activeElement);
      links[at < 0 ? 0 : (at + by + links.length) % links.length]?.focus();
    }
  } else if (open && stack && drawn && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) && $("stack").contains(document.activeElement)) {
    event.preventDefault();
    const { start, end } = stack.range, by = ((end - start) / 200) * (event.shiftKey ? 10 : 1) * (event.key === "ArrowLeft" ? -1 : 1);
    setCursor(event.key === "Home" ? start : event.key === "End" ? end : Math.min(Math.max((cursor ?? ms(drawn.g.now)) + by, start), end));
  } else if (open && stack?.rows && drawn && ["ArrowUp", "ArrowDown"].includes(event.key) && document.activeElement === $("stack")) {
    event.preventDefault();
    const count = stack.rows.groups.length, by = event.key === "ArrowUp" ? -1 : 1;
    setCursor(cursor ?? ms(drawn.g.now), row === null ? 0 : Math.min(Math.max(row + by, 0), count - 1));
  } else if (open && (event.key === "+" || event.key === "=")) zoom("in");
  else if (open && event.key === "-") zoom("out");
  else if (open && event.key === "0") zoom("reset");
});
addEventListener("resize", () => { edge = null; stack?.scale(); place(); paper(); });
/** On paper the page keeps the width for which its charts were drawn, made as small as one sheet needs, and is light. */
function paper() {
  const root = document.documentElement, wide = Math.max(innerWidth, 360);
  root.style.setProperty("--paper", String(Math.min(view().group ? 0.44 : 0.7, 730 / wide)));
  root.style.setProperty("--wide", `${wide}px`);
}
addEventListener("beforeprint", () => { paper(); delete document.documentElement.dataset.theme; });
addEventListener("afterprint", () => { if (theme() !== "system") document.documentElement.dataset.theme = theme(); });
paper();
addEventListener("hashchange", async () => {
  paper();
  const before = opened;
  if (body) await draw().catch((error) => state(false, error.message));
  if (view().group && before !== view().group) { scrollTo(0, 0); $("group-title").focus({ preventScroll: true }); }
});

// -- start -----------------------------------------------------------------------------------------------------
const first = document.getElementById("first");
if (first) { body = JSON.parse(first.textContent); drawOverview(body, link); draw().catch(() => {}); }
refresh();
setInterval(soon, 10000);
const KINDS = new Set(["snapshot", "plan", "forecast", "decision", "mode", "pause", "problem", "arrivals"]);
/** Changes of the group that is looked at are drawn at once; those of others with the next look. */
const concerns = (document) => !view().group || !document.group || document.group === view().group;
listen((kind, document) => { if (KINDS.has(kind) && concerns(document)) soon(); }, (how) => { live = how; if (body) state(true); });
// charts' script is large: it comes when the page stands and has nothing else to do, or as soon as a group is opened
addEventListener("load", () => setTimeout(() => (window.requestIdleCallback ?? setTimeout)(() => bokeh()), 500));
