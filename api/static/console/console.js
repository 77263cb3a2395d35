// What every page does: it follows the changes of the cluster, and takes keys.

import { signed_out, was_signed_out } from "./forms.js";

const body = document.body;
const live = document.getElementById("live");

// What a person has folded out stays so when its part of the page is asked for again.
if (window.Idiomorph) {
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.localName === "details");
}

// ------------------------------------------------------------------ the stream of changes
// Each part with data-live names what it shows: kinds ("Node Pod"), or objects ("Node:node-1",
// "Pod:default/web-1", "Pod@node-1": pods of a node). The stream tells of these alone. When one of
// them changes, the part is asked for again: at once, and then once a second at most, less often
// while many pages are open. It says up to which revision it has heard, and what it shows: an
// answer that was made for another page may serve it, too, or the word that it is the same.
let pause = 1000;
const BEHIND = 3000;
const STALE = 12000;
// An answer that takes longer is given up and asked for again: the connection broke without a sign.
const PATIENCE = 20000;
const due = new Map();
let heard = Date.now();
let revision = 0;
// The browser's clock may go wrong, or jump; times are told by the service's.
let ahead = Date.now() - Number(body.dataset.now || Date.now());
const now = () => Date.now() - ahead;
// What the page was made from.
const first = new URLSearchParams((body.dataset.stream || "").split("?")[1]).get("after") || "0";

function concerns(part, changed) {
  return (part.dataset.live || "").split(" ").some((wanted) => {
    const [, kind, sign, name] = /^([A-Za-z]+)(?:([:@])(.*))?$/.exec(wanted) || [];
    if (!kind || !(kind in changed)) return false;
    const names = changed[kind];
    if (!sign || names === null) return true;
    return names.includes(sign === "@" ? "@" + name : name);
  });
}

// A part that was given what is older than what it has heard of asks once more, after the pause.
function shown(part, mark) {
  if (part.dataset.failed) { delete part.dataset.failed; told(); }
  if (mark && mark < Number(part.dataset.heard || 0)) refresh(part);
}
// A part that got no answer shows what was, which is told, and it asks until there is one.
function missed(part) {
  part.dataset.failed = "1";
  told();
  later(part, BEHIND);
}
function later(part, wait) {
  if (!due.has(part)) due.set(part, setTimeout(() => { due.delete(part); refresh(part); }, wait));
}
document.addEventListener("console:drawn", (event) => shown(event.target, event.detail));
document.addEventListener("console:missed", (event) => missed(event.target));
const reads_part = (detail, target) => target?.matches?.("[data-live]") && detail?.verb === "get";
document.addEventListener("htmx:configRequest", (event) => {
  if (reads_part(event.detail, event.detail.target)) event.detail.timeout = PATIENCE;
});
document.addEventListener("htmx:afterRequest", (event) => {
  const part = event.detail.target;
  if (event.detail.xhr.status === 401) { ended(); return; }
  if (!reads_part(event.detail.requestConfig, part)) return;
  const { status } = event.detail.xhr;
  part.dataset.answered = !status || status === 429 || status >= 500 ? "" : "1";
  if (!part.dataset.answered) return;
  const tag = event.detail.xhr.getResponseHeader("Stowage-Tag");
  if (tag) part.dataset.tag = tag; else delete part.dataset.tag;
  part.dataset.mark = event.detail.xhr.getResponseHeader("Stowage-Mark") || "";
});

async function refresh(part) {
  if (!part.isConnected) return;
  part.dataset.heard ||= first;
  const last = Number(part.dataset.asked || 0);
  const wait = last + pause - Date.now();
  if (wait > 0 || part.dataset.asking) {
    later(part, Math.max(wait, 50));
    return;
  }
  if (part.dataset.draws) { part.dataset.asked = Date.now(); part.dispatchEvent(new CustomEvent("console:draw")); return; }
  if (part.querySelector("form.dirty") || (document.hidden && last)) { part.dataset.missed = "1"; return; }
  part.dataset.asking = "1";
  part.dataset.answered = "";
  part.dataset.asked = Date.now();
  try {
    const from = part.dataset.from || location.pathname + location.search;
    const headers = { "Stowage-Heard": part.dataset.heard, "Stowage-Has": part.dataset.tag || "" };
    await htmx.ajax("GET", from, { target: part, swap: "morph:innerHTML", source: part, headers }).catch(() => {});
  } finally {
    delete part.dataset.asking;
  }
  if (!part.dataset.answered) { missed(part); return; }
  shown(part, Number(part.dataset.mark));
  // What the server keeps for a few seconds was from before the last change: ask once more then.
  if (part.querySelector("[data-behind]")) later(part, BEHIND);
}

function changed(news) {
  document.querySelectorAll("[data-live]").forEach((part) => { if (concerns(part, news)) look(part); });
}

function everything() { document.querySelectorAll("[data-live]").forEach(look); }
function look(part) { part.dataset.heard = revision; refresh(part); }

function tell(state, text) {
  if (!live || (live.dataset.state === state && live.textContent === text)) return;
  live.dataset.state = state;
  live.textContent = text;
}

function told() {
  if (source?.readyState !== EventSource.OPEN || Date.now() - heard > STALE) return;
  if (document.querySelector("[data-failed], #troubles [data-part=database].bad")) tell("stale", "part of the page is out of date");
  else tell("live", "live");
}

// What does not work of the service, above every page (the same as base.html draws at first).
const banner = document.getElementById("troubles");
function troubled(troubles) {
  banner.hidden = !troubles.length;
  const text = troubles.map((one) => `${one.name} ${one.problem}`).join();
  if (banner.dataset.text === text) return;
  banner.dataset.text = text;
  banner.replaceChildren(...troubles.map((one) => {
    const item = Object.assign(document.createElement("li"), { className: one.needed ? "bad" : "warn" });
    item.dataset.part = one.name;
    item.append(Object.assign(document.createElement("b"), { textContent: one.name }), ` ${one.problem}${one.effect ? `: ${one.effect}` : ""}`);
    return item;
  }));
}

let source = null;
// Whether the connection was lost: what was asked for meanwhile may have got no answer.
let lost = false;
function follow() {
  if (!body.dataset.stream || !window.EventSource) return;
  source?.close();
  // It goes on after what was heard last, and at first after what the page was made from.
  const live_parts = [...document.querySelectorAll("[data-live]")].map((part) => part.dataset.live);
  const mine = new EventSource(`${body.dataset.stream.split("?")[0]}?${new URLSearchParams({ after: revision || first, live: live_parts.join(" ") })}`);
  source = mine;
  const on = (name, handle) => mine.addEventListener(name, (event) => {
    heard = Date.now();
    const data = JSON.parse(event.data || "{}");
    if (data.revision) revision = data.revision;
    if (data.pause) pause = data.pause * 1000;
    if (data.now) ahead = Date.now() - data.now * 1000;
    if (data.troubles) troubled(data.troubles);
    told();
    live.title = `revision ${revision.toLocaleString("en")}; while much changes, shown again every ${Math.ceil(pause / 1000)} s`;
    handle(data);
  });
  on("hello", () => { if (lost) everything(); lost = false; });
  on("alive", () => {});
  on("change", (data) => changed(data.changed));
  on("resync", everything);
  mine.addEventListener("signed-out", ended);
  mine.onerror = () => {
    if (mine !== source) return;
    lost = true;
    tell("reconnecting", "reconnecting");
    if (mine.readyState === EventSource.CLOSED) setTimeout(async () => { if (mine === source && !(await was_signed_out())) follow(); }, 3000);
  };
}
function ended() {
  source?.close();
  tell("signed-out", "signed out");
  signed_out();
}
document.addEventListener("console:signed-in", () => { follow(); everything(); });
// A page that the browser kept while another one was shown comes back without its stream.
addEventListener("pagehide", () => { source?.close(); tell("connecting", "connecting"); });
addEventListener("pageshow", (event) => { if (event.persisted) { follow(); everything(); } });
// A part with data-moving inside changes by itself, without a change of the cluster that tells of it.
setInterval(() => {
  document.querySelectorAll("[data-live]:has([data-moving])").forEach(refresh);
}, 2000);
setInterval(() => {
  const silent = Date.now() - heard;
  if (live?.dataset.state === "connecting" && silent > STALE) tell("reconnecting", "not connected");
  if (!live || !["live", "stale"].includes(live.dataset.state) || silent <= STALE) return;
  tell("stale", `no news for ${Math.round(silent / 1000)} s`);
  // A connection that broke without a sign, as when a computer sleeps, is made anew.
  if (silent > 3 * STALE) { heard = Date.now(); lost = true; tell("reconnecting", "reconnecting"); follow(); }
}, 2000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) document.querySelectorAll("[data-missed]").forEach((part) => { delete part.dataset.missed; refresh(part); });
});

// ------------------------------------------------------------------ times
function spell(seconds) {
  const s = Math.floor(Math.abs(seconds));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  const d = Math.floor(h / 24);
  return h < 192 && h % 24 ? `${d}d${h % 24}h` : `${d}d`;
}
export function times() {
  // What a page of the past tells counts from its moment, which stands still.
  const wanted = "past" in body.dataset ? "time[data-form=from-now]" : "time[datetime]";
  document.querySelectorAll(wanted).forEach((time) => {
    const seconds = (now() - Date.parse(time.dateTime)) / 1000;
    const text = time.dataset.form === "age" ? spell(Math.max(0, seconds)) : Math.abs(seconds) < 1 ? "now" : seconds >= 0 ? `${spell(seconds)} ago` : `in ${spell(seconds)}`;
    if (time.textContent !== text) time.textContent = text;
  });
}
// What a countdown has drawn moves to the left; what is due stays at the edge.
function countdowns() {
  document.querySelectorAll("g[data-drawn]").forEach((group) => {
    const { drawn, span, width } = group.dataset;
    const gone = ((now() - Date.parse(drawn)) / 1000 / span) * width;
    group.querySelectorAll("rect").forEach((mark) => {
      mark.dataset.from ||= mark.getAttribute("x");
      mark.setAttribute("x", Math.max(0, mark.dataset.from - gone).toFixed(1));
    });
  });
}
setInterval(() => { times(); countdowns(); }, 1000);

// ------------------------------------------------------------------ rows: j k Enter x, choosing
// What is chosen stays from page to page of the list, and until a preview of it is confirmed.
const CHOSEN = "chosen:";
const chosen = new Set(JSON.parse(sessionStorage.getItem(CHOSEN + location.pathname) || "[]"));
let at = -1;
const rows = () => [...document.querySelectorAll("table[data-rows] tbody tr")].filter((row) => row.querySelector("a, input"));
function move(step) {
  const all = rows();
  if (!all.length) return;
  at = Math.max(0, Math.min(all.length - 1, at + step));
  all.forEach((row, number) => row.classList.toggle("at", number === at));
  all[at].scrollIntoView({ block: "nearest" });
  all[at].querySelector("a")?.focus({ preventScroll: true });
}
function remember(box) {
  if (box.checked) chosen.add(box.value); else chosen.delete(box.value);
  show();
}
function show() {
  document.querySelectorAll("td.tick input").forEach((box) => { box.checked = chosen.has(box.value); });
  const bar = document.getElementById("chosen");
  if (!bar) return;
  sessionStorage.setItem(CHOSEN + location.pathname, JSON.stringify([...chosen]));
  bar.hidden = !chosen.size;
  const count = bar.querySelector("[data-count]");
  count.textContent = chosen.size === 1 ? `1 ${bar.dataset.one}` : `${chosen.size} ${bar.dataset.many}`;
  count.title = [...chosen].join(" ");
}
document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches?.("td.tick input")) remember(box);
  if (box.id === "every") {
    document.querySelectorAll("td.tick input").forEach((one) => { one.checked = box.checked; if (box.checked) chosen.add(one.value); else chosen.delete(one.value); });
    show();
  }
  if (box.dataset?.column) {
    const on = [...document.querySelectorAll("[data-column]")].filter((one) => one.checked).map((one) => one.dataset.column);
    go(with_({ columns: on.join(","), start: "" }));
  }
});
export function with_(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) if (value) query.set(name, value); else query.delete(name);
  return `${location.pathname}${query.size ? "?" + query : ""}`;
}
export function go(address) { location.assign(address); }
function preview(what) {
  const bar = document.getElementById("chosen");
  const row = rows()[at];
  const names = chosen.size ? [...chosen] : row?.dataset.name ? [row.dataset.name] : document.body.querySelector("main [data-node]") ? [document.body.querySelector("main [data-node]").dataset.node] : [];
  const base = bar?.dataset.change || document.querySelector("[data-change]")?.dataset.change;
  if (!base || !names.length) return;
  const query = new URLSearchParams([["do", what], ...names.map((name) => ["node", name])]);
  go(`${base}?${query}`);
}
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-do]");
  if (button) preview(button.dataset.do);
  if (event.target.closest?.("#open-palette")) open_palette();
  if (event.target.closest?.("#open-keys")) document.getElementById("keys").showModal();
  const copy = event.target.closest?.("[data-copy]");
  if (copy) copied(copy);
  if (event.target.closest?.("[data-choose-none]")) { chosen.clear(); show(); }
});
// Without https the browser lends no clipboard: the text is selected, and taken by the old way.
async function copied(button) {
  const { copy: text, label = button.textContent } = button.dataset;
  button.dataset.label = label;
  let is_done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (!is_done) {
    const field = Object.assign(document.createElement("textarea"), { value: text, className: "unseen" });
    button.after(field);
    field.select();
    is_done = document.execCommand("copy");
    field.remove();
    button.focus();
  }
  button.textContent = is_done ? "copied" : "not copied: select the text and copy it yourself";
  setTimeout(() => { button.textContent = label; }, is_done ? 1500 : 5000);
}
// A menu closes when something else is pressed or focused, and by Escape, which leads back to it.
const menus = () => document.querySelectorAll("details.menu[open], details.who[open]");
for (const kind of ["click", "focusin"]) {
  document.addEventListener(kind, (event) => menus().forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; }));
}
document.addEventListener("htmx:afterSwap", () => { show(); times(); if (at >= 0) rows()[at]?.classList.add("at"); });
document.addEventListener("htmx:beforeSwap", (event) => { if ([400, 403, 404, 409, 422].includes(event.detail.xhr.status) || (event.detail.elt.dataset.asks !== undefined && event.detail.xhr.status >= 400)) event.detail.shouldSwap = true; });

// ------------------------------------------------------------------ keys
let after_g = 0;
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); open_palette(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest?.("dialog[open]")) return;
  if (event.key === "Escape" && menus().length) { menus().forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); }); return; }
  if (event.target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable], [data-typed]")) { if (event.key === "Escape") (event.target.shadowRoot?.activeElement || event.target).blur(); return; }
  if (Date.now() - after_g < 1200) {
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    after_g = 0;
    if (link) { event.preventDefault(); go(link.href); return; }
  }
  const on_map = event.target.id === "map";
  const act = {
    "/": () => document.querySelector("[data-slash]")?.focus(),
    "?": () => document.getElementById("keys")?.showModal(),
    g: () => { after_g = Date.now(); },
    j: () => move(1), k: () => move(-1),
    x: () => { const box = rows()[at]?.querySelector("td.tick input"); if (box) { box.checked = !box.checked; remember(box); } },
    a: () => document.getElementById("confirm")?.focus(),
    c: () => on_map || preview("cordon"), d: () => on_map || preview("drain"),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});

// ------------------------------------------------------------------ the palette
const palette = document.getElementById("palette");
const field = document.getElementById("palette-input");
const list = document.getElementById("palette-found");
let asked = 0;
let found_for = null;
let opens = false;
function open_palette() { if (palette && !palette.open) { palette.showModal(); field.value = ""; opens = false; search(); field.focus(); } }
async function search() {
  const mine = ++asked, typed_in = field.value;
  const answer = await fetch(`${palette.dataset.from}?q=${encodeURIComponent(field.value)}`, { headers: { "HX-Request": "true" } });
  if (answer.status === 401) { palette.close(); ended(); return; }
  if (!answer.ok || mine !== asked) return;
  const found = await answer.json();
  list.replaceChildren(...found.items.map((one, number) => {
    const item = document.createElement("li");
    item.role = "option";
    item.id = `found-${number}`;
    item.dataset.to = one.to;
    item.append(Object.assign(document.createElement("span"), { textContent: one.text }), Object.assign(document.createElement("small"), { textContent: one.about }));
    return item;
  }));
  if (!found.items.length) list.replaceChildren(Object.assign(document.createElement("li"), { textContent: `Nothing is called "${field.value}". Try a part of a name, or label=value.` }));
  pick(0);
  found_for = typed_in;
  if (opens && found_for === field.value) { opens = false; open_found(list.querySelector("[role=option]")); }
}
function open_found(item) { if (item) go(item.dataset.to); }
function pick(number) {
  const items = [...list.querySelectorAll("[role=option]")];
  items.forEach((one, place) => one.setAttribute("aria-selected", String(place === number)));
  const item = items[number];
  field.setAttribute("aria-activedescendant", item ? item.id : "");
  item?.scrollIntoView({ block: "nearest" });
}
if (palette) {
  let typed = 0;
  field.addEventListener("input", () => { opens = false; clearTimeout(typed); typed = setTimeout(search, 150); });
  palette.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.preventDefault(); palette.close(); return; }
    const items = [...list.querySelectorAll("[role=option]")];
    const here = items.findIndex((one) => one.getAttribute("aria-selected") === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); pick((here + (event.key === "ArrowDown" ? 1 : -1) + items.length) % Math.max(1, items.length)); }
    // Who types and presses Enter at once opens what is found for that, not what was listed before.
    if (event.key === "Enter") { event.preventDefault(); if (found_for === field.value) open_found(items[here]); else opens = true; }
  });
  list.addEventListener("click", (event) => { const item = event.target.closest("[data-to]"); if (item) go(item.dataset.to); });
}
document.querySelectorAll("dialog").forEach((dialog) => dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }));

// ------------------------------------------------------------------ tables as files
// Long lists have a file of all rows from the server; of the others what is shown can be had.
function plain(text) { const one = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; return /[",\n]/.test(one) ? `"${one.replaceAll('"', '""')}"` : one; }
function offer_files() {
  document.querySelectorAll("table[data-rows], main .scrolls > table").forEach((table) => {
    const box = table.closest(".scrolls") || table;
    if (box.nextElementSibling?.matches("[data-export]") || table.closest(".beside") || !table.tBodies[0]?.rows.length) return;
    if (table.closest("section")?.querySelector("a.button[href*='csv']")) return;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "export", textContent: "CSV" });
    button.dataset.export = "";
    button.title = "these rows as a file";
    box.after(button);
  });
}
function save(button) {
  const table = button.previousElementSibling.querySelector?.("table") || button.previousElementSibling;
  // A table of which the page holds what is on the screen tells of all its rows.
  const cells = table.every_row?.() || [...table.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("th, td")].map((cell) => cell.querySelector("time")?.dateTime || cell.innerText.trim().replace(/\s+/g, " ")));
  const lines = cells.map((row) => row.map(plain).join(","));
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob([lines.join("\r\n")], { type: "text/csv" })), download: `${document.title.split(" · ")[0].replace(/[^\w.-]+/g, "-")}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
document.addEventListener("click", (event) => { const button = event.target.closest?.("[data-export]"); if (button) save(button); });
document.addEventListener("htmx:afterSwap", offer_files);

// ------------------------------------------------------------------ the past
// The slider's steps in minutes before now: fine at first, a week at most.
const STEPS = [0, 1, 2, 5, 10, 15, 20, 30, 45, 60, 120, 240, 480, 1440, 2880, 4320, 10080];
const slider = document.getElementById("time");
if (slider) {
  const out = document.getElementById("time-said");
  const text = document.getElementById("time-at");
  const words = () => { const minutes = STEPS[slider.value]; out.textContent = minutes ? `${spell(minutes * 60)} ago` : "now"; slider.setAttribute("aria-valuetext", out.textContent); };
  const iso = (minutes) => new Date(now() - minutes * 60000).toISOString().replace(/\.\d+Z$/, "Z");
  const travel = (at) => go(with_({ at, start: "", continue: "", before: "" }));
  if (slider.dataset.at) {
    const minutes = (now() - Date.parse(slider.dataset.at)) / 60000;
    slider.value = STEPS.reduce((best, step, i) => (Math.abs(step - minutes) < Math.abs(STEPS[best] - minutes) ? i : best), 0);
  }
  words();
  slider.addEventListener("input", words);
  slider.addEventListener("change", () => travel(STEPS[slider.value] ? iso(STEPS[slider.value]) : ""));
  document.getElementById("time-form").addEventListener("submit", (event) => { event.preventDefault(); travel(text.value.trim()); });
}

// ------------------------------------------------------------------ start
document.getElementById("confirm")?.form.addEventListener("submit", () => Object.keys(sessionStorage).forEach((key) => { if (key.startsWith(CHOSEN)) sessionStorage.removeItem(key); }));
document.querySelectorAll("[data-load]").forEach(refresh);
show();
offer_files();
follow();
times();
