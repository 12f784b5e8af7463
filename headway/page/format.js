// Figures, durations and instants as people read them; unknown is a dash, never zero.

export const DASH = "–";
const plain = [0, 1, 2, 3].map((d) => new Intl.NumberFormat("en", { maximumFractionDigits: d }));
export const known = (v) => v !== null && v !== undefined && Number.isFinite(v);

export function number(v) {
  if (!known(v)) return DASH;
  const a = Math.abs(v);
  if (a < 1e-12) return "0";
  const [scale, unit] = a >= 1e9 ? [1e9, " G"] : a >= 1e6 ? [1e6, " M"] : a >= 1e4 ? [1e3, " k"] : [1, ""];
  const scaled = v / scale;
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(scaled))));
  const rounded = Number(scaled.toPrecision(3));
  const places = Number.isInteger(v) && scale === 1 ? 0 : digits;
  return (plain[places]?.format(rounded) ?? rounded.toLocaleString("en", { maximumFractionDigits: places })) + unit;
}
export const rate = (v) => (known(v) ? `${number(v)} records/s` : DASH);
export const whole = (v) => (known(v) ? String(Math.round(v)) : DASH);
export function share(v, digits) {
  if (!known(v)) return DASH;
  const p = 100 * v;
  if (p === 0) return "0 %";
  const d = digits ?? (p !== 0 && Math.abs(p) < 1 ? (Math.abs(p) < 0.1 ? 3 : 2) : Math.abs(p) < 10 ? 1 : 0);
  return `${p.toFixed(d)} %`;
}
export const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
export const members = (n) => (known(n) ? plural(n, "member") : DASH);
export function duration(s) {
  if (!known(s)) return DASH;
  if (s < 1) return s < 0.0005 ? "0 s" : `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) {
    const all = Math.round(s / 60), h = Math.floor(all / 60), m = all % 60;
    return s >= 36000 ? `${Math.round(s / 3600)} h` : m ? `${h} h ${m} min` : `${h} h`;
  }
  return `${(s / 86400).toFixed(1)} days`;
}
export const ms = (iso) => Date.parse(iso);

const formats = new Map();
function format(zone, options) {
  const key = zone + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", { timeZone: zone, hourCycle: "h23", ...options }));
  return formats.get(key);
}
const HM = { hour: "2-digit", minute: "2-digit" };
export const hhmm = (t, zone) => format(zone, HM).format(t);
export const day = (t, zone) => format(zone, { weekday: "short", day: "numeric", month: "short" }).format(t);
export const dayTime = (t, zone) => `${format(zone, { weekday: "short", day: "numeric", month: "short" }).format(t)} ${hhmm(t, zone)}`;
export const weekTime = (t, zone) => `${format(zone, { weekday: "long" }).format(t)} ${hhmm(t, zone)}`;
export const utc = (t) => `${new Date(t).toISOString().slice(0, 16).replace("T", " ")} UTC`;
export function zoneName(t, zone) {
  const part = format(zone, { timeZoneName: "short" }).formatToParts(t).find((p) => p.type === "timeZoneName");
  return part ? part.value : zone;
}
/** "08:52" when it is today, "Mon 5 Jan 08:52" when it is not. */
export function when(iso, zone, now) {
  const t = ms(iso);
  return day(t, zone) === day(now, zone) ? hhmm(t, zone) : dayTime(t, zone);
}
/** Milliseconds by which the zone's wall clock is ahead of UTC at an instant. */
export function offset(t, zone) {
  const parts = Object.fromEntries(format(zone, { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit",
    minute: "2-digit", second: "2-digit" }).formatToParts(t).map((p) => [p.type, p.value]));
  const wall = Date.UTC(parts.year, parts.month - 1, parts.day, parts.hour, parts.minute, parts.second);
  return wall - Math.floor(t / 1000) * 1000;
}
const STEPS = [60e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 2 * 86400e3, 7 * 86400e3];
/** Ticks on round local times: [[instant, label]], midnights say the day. */
export function ticks(start, end, zone, wanted) {
  const step = STEPS.find((s) => (end - start) / s <= wanted) ?? 7 * 86400e3;
  const found = [];
  let shift = offset(start, zone);
  for (let wall = Math.ceil((start + shift) / step) * step; ; wall += step) {
    let t = wall - shift;
    const there = offset(t, zone);
    if (there !== shift) { // the clocks change before this tick: a time that the change leaves out has none
      shift = there;
      t = wall - shift;
      if (offset(t, zone) !== shift) continue;
    }
    if (t > end) break;
    if (t < start) continue;
    const midnight = ((wall % 86400e3) + 86400e3) % 86400e3 === 0;
    found.push([t, midnight ? day(t, zone) : hhmm(t, zone)]);
  }
  return found;
}
/** Text for a person: what a plan's next step is, and why. */
export function sentence(g) {
  const zone = g.timezone, now = ms(g.now), n = g.next, at = g.replicas;
  if (at.planned === null) return g.problems.plan ? `no plan: ${g.problems.plan}` : notYet(g) ?? "no plan yet; the first comes with the next tick";
  if (g.hold) return `holds ${members(at.requested ?? at.planned)}: ${g.reasons[0] ?? "something is unknown"}`;
  if (at.requested !== null && at.planned !== at.requested) {
    return `${at.requested} → ${members(at.planned)} now: ${g.reasons[0] ?? "no reason was given"}`;
  }
  if (!n || n.replicas === at.planned) return `stays at ${members(at.planned)} as far as the forecast reaches`;
  return `${at.planned} → ${members(n.replicas)} at ${when(n.from, zone, now)}, for ${rate(n.demand)}`;
}
/** Why there is no forecast yet, and when there will be one; null when there is. */
export function notYet(g) {
  if (!g.not_yet) return null;
  const from = g.not_yet.possible_from;
  return `no forecast yet: ${g.not_yet.reason}${from ? `; possible from ${dayTime(ms(from), g.timezone)}` : ""}`;
}
/** What keeps the plan from doing better: "partition orders:7 from Monday 11:40". */
export function bound(g) {
  const b = g.bound_by;
  if (!b || b.kind === "none") return "nothing holds the plan back";
  const from = b.from ? ` from ${weekTime(ms(b.from), g.timezone)}` : "";
  const words = { partition: `partition ${b.id}`, key: `key ${b.id}`, downstream: "what comes after the members",
    max_replicas: `max_replicas = ${b.id ?? g.max_replicas}`, history: "too little history" };
  return `${words[b.kind] ?? b.kind}${from}`;
}
