// The page: reads the public API, keeps its state in the URL, and redraws when data moved.
import { charts } from "/page/charts.js";

const $ = (id) => document.getElementById(id);
const state = new URLSearchParams(location.hash.slice(1));
const hours = () => Number(state.get("hours")) || 24;
let panels = null, busy = false, again = false;

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}
async function get(path) {
  const answer = await fetch(path, { headers: headers() });
  if (answer.status === 401) {
    const token = prompt("Read token of this server:");
    if (token) { sessionStorage.setItem("token", token); return get(path); }
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail || answer.statusText);
  return body;
}
const number = (v) => {
  if (v === null || v === undefined) return "–";
  const big = Math.abs(v) >= 1e6 ? [v / 1e6, " M"] : Math.abs(v) >= 1e4 ? [v / 1e3, " k"] : [v, ""];
  return Number(big[0].toPrecision(3)).toLocaleString("en") + big[1];
};
const share = (v) => (v === null || v === undefined ? "–" : `${(100 * v).toFixed(1)} %`);
const clock = (iso) => iso.slice(0, 16).replace("T", " ") + " UTC";
const hhmm = (iso) => iso.slice(11, 16);
const seconds = (v) => (v === null || v === undefined ? "–" : v < 1 ? `${Math.round(v * 1000)} ms`
  : v < 120 ? `${v.toFixed(0)} s` : v < 7200 ? `${(v / 60).toFixed(0)} min` : `${(v / 3600).toFixed(1)} h`);
const ms = (iso) => Date.parse(iso);
const WORDS = { fine: ["●", "fine"], attention: ["▲", "attention"], acting: ["◆", "acting now"] };

function cell(row, text, className) {
  const td = row.insertCell();
  td.textContent = text;
  if (className) td.className = className;
  return td;
}
function sentence(g) {
  const n = g.next;
  if (!n) return g.replicas.planned === null ? "no plan yet" : "no change within the horizon";
  return `${g.replicas.planned} → ${n.replicas} members at ${hhmm(n.from)} for ${number(n.demand)} records/s`;
}
function table(groups) {
  const body = $("groups").tBodies[0];
  const rows = groups.map((g) => {
    const row = document.createElement("tr"), [icon, word] = WORDS[g.state];
    cell(row, `${icon} ${word}`, `state ${g.state}`);
    const name = cell(row, "");
    const link = document.createElement("a");
    link.href = `#group=${encodeURIComponent(g.group)}&hours=${hours()}`;
    link.textContent = g.group;
    name.append(link);
    cell(row, number(g.snapshot?.arrival_rate), "n");
    cell(row, [g.replicas.working, g.replicas.requested, g.replicas.planned].map((v) => v ?? "–").join(" / "), "n");
    cell(row, sentence(g));
    cell(row, number(g.snapshot?.lag), "n");
    cell(row, seconds(g.latency_p99_s), "n");
    cell(row, `${share(g.scores.wape)} / ${share(g.scores.coverage)}`, "n");
    cell(row, g.paused ? `${g.mode}, paused` : g.mode);
    return row;
  });
  if (!rows.length) {
    const row = document.createElement("tr");
    cell(row, "No group is configured yet: headway init writes a first configuration, or add [groups.<name>] to headway.toml.", "quiet").colSpan = 9;
    rows.push(row);
  }
  body.replaceChildren(...rows);
}
const gaps = (values) => values.map((v) => (v === null ? NaN : v));

async function group(g) {
  const name = encodeURIComponent(g.group), base = `/v1/groups/${name}`;
  const now = ms(g.now), span = hours() * 3600e3, start = now - span, end = now + Math.min(span / 2, 12 * 3600e3);
  const iso = (t) => new Date(t).toISOString().slice(0, 19) + "Z";
  const between = `from=${iso(start)}&to=${iso(now)}`;
  const calls = {
    arrivals: `${base}/series?name=arrivals&${between}`, forecast: `${base}/forecast?by=topic`,
    members: `${base}/series?name=replicas&${between}`, plan: `${base}/plan`, decisions: `${base}/decisions?limit=50`,
  };
  for (const [key, call] of Object.entries(calls)) { $(`${key}-call`).href = call; $(`${key}-call`).textContent = call; }
  const [arrivals, forecast, members, plan, decisions] = await Promise.all(Object.values(calls).map(get));
  $("group").hidden = false;
  $("group-title").textContent = g.group;
  $("sentence").textContent = sentence(g);
  const troubles = Object.entries(g.problems).map(([k, v]) => `${k}: ${v}`);
  if (forecast.values === null) troubles.push(`no forecast: ${forecast.reasons.join("; ")}` +
    (forecast.possible_from ? `; possible from ${clock(forecast.possible_from)}` : ""));
  $("trouble").hidden = !troubles.length;
  $("trouble").textContent = troubles.join(" · ");
  for (const b of $("ranges").children) b.setAttribute("aria-pressed", String(Number(b.dataset.hours) === hours()));
  $("reasons").replaceChildren(...plan.reasons.map((r) => Object.assign(document.createElement("li"), { textContent: r })));
  const fill = (id, rows) => $(id).tBodies[0].replaceChildren(...rows);
  fill("plan", plan.steps.slice(0, 40).map((s) => {
    const row = document.createElement("tr");
    cell(row, clock(s.from)); cell(row, s.replicas, "n"); cell(row, number(s.demand), "n");
    return row;
  }));
  fill("decisions", decisions.decisions.slice(-30).reverse().map((d) => {
    const row = document.createElement("tr");
    cell(row, clock(d.at)); cell(row, d.replicas, "n"); cell(row, d.reasons[0] ?? "–");
    return row;
  }));
  panels ??= charts();
  if (!panels) { $("arrivals").textContent = "Charts need the page extra: pip install 'headway[page]'. The tables below hold the same."; return; }
  const t0 = ms(arrivals.from), step = arrivals.step_s * 1000;
  const series = { truth: { x: arrivals.values.map((_, i) => t0 + i * step), y: gaps(arrivals.values) } };
  const total = forecast.total, empty = { x: [], low: [], q90: [], q95: [], median: [] };
  if (total) {
    const f0 = ms(forecast.origin), count = total["0.5"].length, low = total["0.1"] ?? total["0.5"];
    const q90 = total["0.9"] ?? total["0.5"];
    series.band = { x: Array.from({ length: count }, (_, i) => f0 + i * forecast.step_s * 1000), low, q90,
      q95: total["0.95"] ?? q90, median: total["0.5"] };
  } else series.band = empty;
  const points = members.points, x = points.map((p) => ms(p.at));
  const column = (key) => ({ x, y: gaps(points.map((p) => p[key] ?? null)) });
  series.working = column("working");
  series.requested = column("requested");
  series.reactive = column("reactive");
  series.capacity = { x, y: points.map((p) => (p.working === null || !g.capacity_per_member ? NaN : p.working * g.capacity_per_member)) };
  const steps = plan.steps;
  series.planned = { x: [...steps.map((s) => ms(s.from)), end], y: [...steps.map((s) => s.replicas), steps.at(-1)?.replicas ?? NaN] };
  panels.draw({ series, start, end, now });
}

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const body = await get("/v1/groups");
    $("clock").textContent = clock(body.now);
    $("link").textContent = "";
    table(body.groups);
    if (!state.get("group") && body.groups.length) state.set("group", body.groups[0].group);
    const chosen = body.groups.find((g) => g.group === state.get("group"));
    $("group").hidden = !chosen;
    if (chosen) await group(chosen);
  } catch (error) {
    $("link").textContent = `not up to date: ${error.message}; asking again`;
  } finally {
    busy = false;
    if (again) { again = false; soon(); }
  }
}
let timer = null;
function soon() { timer ??= setTimeout(() => { timer = null; refresh(); }, 1000); }

addEventListener("hashchange", () => {
  for (const [k, v] of new URLSearchParams(location.hash.slice(1))) state.set(k, v);
  refresh();
});
$("ranges").addEventListener("click", (event) => {
  if (!event.target.dataset.hours) return;
  state.set("hours", event.target.dataset.hours);
  location.hash = state.toString();
});
const THEMES = ["system", "light", "dark"];
function theme(name) {
  localStorage.setItem("theme", name);
  if (name === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = name;
  $("theme").textContent = `Theme: ${name}`;
  panels = null;
}
$("theme").addEventListener("click", () => {
  theme(THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "system") + 1) % 3]);
  refresh();
});
theme(localStorage.getItem("theme") ?? "system");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { panels = null; refresh(); });
if (!sessionStorage.getItem("token")) {
  const events = new EventSource("/v1/events");
  for (const kind of ["snapshot", "plan", "forecast", "decision", "mode", "pause", "problem"]) events.addEventListener(kind, soon);
}
setInterval(soon, 10000);
refresh();
