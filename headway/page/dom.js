// Small tools to build documents: elements with text, never markup.
import { ms, utc, when } from "/page/format.js";

export const $ = (id) => document.getElementById(id);
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}
const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
/** Replace children only when what is shown differs, so that nothing moves unless data moved. */
export function fill(parent, ...children) {
  const fresh = el("div", {}, ...children);
  if (parent.innerHTML !== fresh.innerHTML) parent.replaceChildren(...fresh.childNodes);
}
export function table(heads, rows, caption) {
  return el("table", {}, caption ? el("caption", { class: "hidden" }, caption) : null,
    el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col", class: h.startsWith("#") ? "n" : null }, h.replace(/^#/, ""))))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((c, i) => el("td", { class: heads[i].startsWith("#") ? "n" : null }, c))))));
}
/** A panel that scrolls, and can be reached by keyboard for that. */
export const box = (label, ...children) => el("div", { class: "box", tabindex: "0", role: "group", "aria-label": label }, ...children);
/** An instant in the group's zone; its UTC on hover. */
export const stamp = (iso, zone, now) => el("time", { datetime: iso, title: utc(ms(iso)) }, when(iso, zone, now));
export const STATES = { fine: ["●", "fine"], attention: ["▲", "attention"], acting: ["◆", "acting now"] };
export function badge(state) {
  const [icon, word] = STATES[state];
  return el("span", { class: `state ${state}` }, el("span", { "aria-hidden": "true" }, icon), ` ${word}`);
}
