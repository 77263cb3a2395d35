// The map of the fleet: one rectangle for each node, drawn from columns, kept up to date by changes.

const map = document.getElementById("map");
const CORDONED = 1, TAINTED = 2, NOT_READY = 4, LEAVING = 8, TERMINATING = 16;
const LIGHT = ["#e3e9f1", "#b9cbe6", "#86a6da", "#557fc8", "#2f5597", "#1d2f6f"];
const DARK = ["#232c39", "#28406a", "#3a62a6", "#5a8bd6", "#8fb8f2", "#d3e3ff"];
const FULL = { light: "#c2410c", dark: "#ff9d5c" };
const ENDS = { taints: ["none", "blocks pods"], leaving: ["none", "5 and more"], age: ["new", "a month"] };
// What is told of each group: its title, and where a node has what is requested and what it offers.
const USES = [["CPU", "cpu"], ["memory", "memory"], ["pods", "pods"]];
const USE = 178;
const share = (members, of) => {
  const [asked, offered] = members.reduce((sum, one) => [sum[0] + one[of][0], sum[1] + one[of][1]], [0, 0]);
  return offered ? asked / offered : 0;
};
const percent = (part) => `${Math.round(100 * part)} %`;
const dark = matchMedia("(prefers-color-scheme: dark)");

if (map) start();

function start() {
  const form = document.getElementById("map-form");
  const tip = document.getElementById("tip");
  const said = document.getElementById("map-said");
  const problem = document.getElementById("map-problem");
  const context = map.getContext("2d");
  let nodes = new Map();
  let groups = [];
  let revision = 0;
  let places = [];
  let labels = [];
  let size = 10;
  let across = 1;
  let at = -1;
  let asking = false;
  let jumps = false;

  const then = new URLSearchParams(location.search).get("at");
  const of_then = (address) => (then ? `${address}${address.includes("?") ? "&" : "?"}at=${encodeURIComponent(then)}` : address);
  const choice = () => Object.fromEntries(new FormData(form));
  // To ask for a style costs more than to draw a square: once for a drawing, not for each node.
  function paints() {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(["mut", "warn", "bad", "fg", "line", "rail", "fine", "high", "full"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  function mixer(by) {
    const scale = dark.matches ? DARK : LIGHT;
    const full = FULL[dark.matches ? "dark" : "light"];
    return (value) => {
      if (value < 0) return "transparent";
      if (by !== "age" && value >= 950) return full;
      return scale[Math.min(scale.length - 1, Math.floor((value / 950) * scale.length))];
    };
  }

  async function ask(anew) {
    if (asking) { asking = anew ? "anew" : asking; return; }
    asking = true;
    const query = new URLSearchParams(choice());
    if (!anew && revision) query.set("since", revision);
    try {
      const answer = await fetch(`${map.dataset.columns}?${query}`, { headers: { "HX-Request": "true", "Stowage-Heard": anew ? "" : map.dataset.heard }, signal: AbortSignal.timeout(20000) }).catch(() => null);
      if (!answer || answer.status === 429 || answer.status >= 500) { map.dispatchEvent(new CustomEvent("console:missed", { bubbles: true })); return; }
      if (answer.status === 400) { problem.innerHTML = await answer.text(); problem.hidden = false; return; }
      if (answer.status === 401) document.dispatchEvent(new Event("console:signed-out"));
      if (!answer.ok) return;
      problem.hidden = true;
      take(await answer.json());
      draw();
      map.dispatchEvent(new CustomEvent("console:drawn", { detail: revision, bubbles: true }));
      if (jumps && asking !== "anew") { jumps = false; jump(); }
    } finally {
      const again = asking === "anew";
      asking = false;
      if (again) ask(true);
    }
  }

  function take(found) {
    if (found.whole) nodes = new Map();
    found.gone.forEach((name) => nodes.delete(name));
    const words = found.groups;
    found.name.forEach((name, i) => nodes.set(name, {
      name, group: words[found.group[i]], flags: found.flags[i], value: found.value[i],
      cpu: found.cpu[i], memory: found.memory[i], pods: found.pods[i], dim: found.dim.length ? found.dim[i] : false,
    }));
    revision = found.revision;
    groups = [...new Set([...nodes.values()].map((one) => one.group))].sort((a, b) => (a === "") - (b === "") || a.localeCompare(b, "en", { numeric: true }));
    place();
  }

  function place() {
    const width = map.clientWidth || 600;
    const room = Math.max(260, innerHeight - map.getBoundingClientRect().top - scrollY - 30) - groups.length * 26;
    size = Math.max(7, Math.min(40, Math.floor(Math.sqrt((width * Math.max(room, 120)) / Math.max(1, nodes.size)))));
    if (nodes.size > 600) size = Math.min(size, 14);
    across = Math.max(1, Math.floor(width / size));
    const by_group = new Map(groups.map((group) => [group, []]));
    [...nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1)).forEach((one) => by_group.get(one.group).push(one));
    places = [];
    labels = [];
    let y = 0;
    for (const [group, members] of by_group) {
      const name = group || "without this label";
      const text = `${name.length > 40 ? `${name.slice(0, 39)}…` : name} · ${members.length.toLocaleString("en")} node${members.length === 1 ? "" : "s"}`;
      labels.push({ text, uses: USES.map(([title, of]) => [title, share(members, of)]), y: y + 12 });
      y += 18;
      members.forEach((one, i) => places.push({ one, x: (i % across) * size, y: y + Math.floor(i / across) * size }));
      y += Math.ceil(members.length / across) * size + 8;
    }
    const ratio = devicePixelRatio || 1;
    if (map.width !== Math.round(width * ratio) || map.height !== Math.round(y * ratio)) {
      map.width = Math.round(width * ratio);
      map.height = Math.round(y * ratio);
      map.style.height = `${y}px`;
    }
    at = Math.min(at, places.length - 1);
    tell_groups();
  }

  // The same in words, for who does not see the map.
  function tell_groups() {
    document.getElementById("map-groups").replaceChildren(...labels.map(({ text, uses }) => Object.assign(document.createElement("li"), { textContent: `${text}: requested of ${uses.map(([title, part]) => `${title} ${percent(part)}`).join(", ")}` })));
  }
  function fitting(text, width) {
    let many = text.length;
    while (many > 1 && context.measureText(text.slice(0, many)).width > width) many -= 1;
    return many < text.length ? `${text.slice(0, many - 1)}…` : text;
  }
  // Beside the name of each group, in columns, how much is requested of what its nodes offer.
  function draw_groups({ mut, fg, rail, fine, high, full }) {
    const widest = Math.max(0, ...labels.map(({ text }) => context.measureText(text).width));
    const left = Math.max(0, Math.min(widest + 18, map.clientWidth - USE));
    const many = Math.min(USES.length, Math.floor((map.clientWidth - left) / USE));
    for (const { text, uses, y } of labels) {
      context.fillStyle = fg;
      context.fillText(fitting(text, left - 12), 0, y);
      uses.slice(0, many).forEach(([title, part], number) => {
        const x = left + number * USE;
        context.fillStyle = mut;
        context.fillText(title, x, y);
        context.fillStyle = rail;
        context.fillRect(x + 60, y - 8, 60, 8);
        context.fillStyle = part >= 0.95 ? full : part >= 0.8 ? high : fine;
        context.fillRect(x + 60, y - 8, 60 * Math.min(1, part), 8);
        context.fillStyle = mut;
        context.fillText(percent(part), x + 126, y);
      });
    }
  }

  function draw() {
    const began = performance.now();
    const ratio = devicePixelRatio || 1;
    const { by } = choice();
    const colours = paints();
    const { warn, bad, fg, line } = colours;
    const mix = mixer(by);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, map.width, map.height);
    context.font = "12px system-ui, DejaVu Sans, sans-serif";
    draw_groups(colours);
    const s = size - 1;
    for (const { one, x, y } of places) {
      context.globalAlpha = one.dim ? 0.18 : 1;
      context.fillStyle = mix(one.value);
      context.fillRect(x, y, s, s);
      if (one.value < 0) { context.strokeStyle = line; context.lineWidth = 1; context.strokeRect(x + 0.5, y + 0.5, s - 1, s - 1); }
      if (one.flags & (NOT_READY | TERMINATING)) {
        context.strokeStyle = bad; context.lineWidth = 1.4; context.beginPath();
        context.moveTo(x, y + s); context.lineTo(x + s, y); context.moveTo(x, y); context.lineTo(x + s, y + s); context.stroke();
      }
      if (one.flags & TAINTED) { context.fillStyle = fg; context.beginPath(); context.moveTo(x + s, y + s); context.lineTo(x + s - Math.max(3, s * 0.4), y + s); context.lineTo(x + s, y + s - Math.max(3, s * 0.4)); context.fill(); }
      if (one.flags & CORDONED) { context.strokeStyle = warn; context.lineWidth = 1.5; context.strokeRect(x + 0.8, y + 0.8, s - 1.6, s - 1.6); }
      if (one.flags & LEAVING) { context.strokeStyle = bad; context.lineWidth = 2; context.strokeRect(x, y, s, s); }
    }
    context.globalAlpha = 1;
    if (at >= 0 && places[at]) { context.strokeStyle = fg; context.lineWidth = 2; context.strokeRect(places[at].x - 1, places[at].y - 1, s + 2, s + 2); }
    map.dataset.drawn = String(nodes.size);
    map.dataset.by = by;
    map.dataset.milliseconds = (performance.now() - began).toFixed(1);
    scale(by, mix);
  }

  function scale(by, mix) {
    const box = document.getElementById("scale");
    const c = box.getContext("2d");
    for (let x = 0; x < 140; x++) { c.fillStyle = mix(Math.round((x / 139) * 1000)); c.fillRect(x, 0, 1, 10); }
    const [low, high] = ENDS[by] || ["empty", "full"];
    document.getElementById("scale-low").textContent = low;
    document.getElementById("scale-high").textContent = high;
  }

  const cores = (milli) => (milli / 1000).toLocaleString("en", { maximumFractionDigits: 1 });
  const gib = (mib) => (mib / 1024).toLocaleString("en", { maximumFractionDigits: 1 });
  function words({ one }) {
    const states = [[CORDONED, "cordoned"], [TAINTED, "tainted"], [NOT_READY, "not ready"], [LEAVING, "pods leaving"], [TERMINATING, "terminating"]].filter(([bit]) => one.flags & bit).map(([, word]) => word);
    return `${one.name}${one.group ? "  ·  " + one.group : ""}${states.length ? "  ·  " + states.join(", ") : ""}\nCPU ${cores(one.cpu[0])} / ${cores(one.cpu[1])}   memory ${gib(one.memory[0])} / ${gib(one.memory[1])} GiB   pods ${one.pods[0]} / ${one.pods[1]}`;
  }
  function select(number, { say = false } = {}) {
    at = number;
    draw();
    const spot = places[at];
    if (!spot) { tip.hidden = true; return; }
    tip.textContent = `${words(spot)}\nEnter opens · c previews a cordon · d a drain`;
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(spot.x + size + 4, map.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${spot.y + size + 6}px`;
    if (say) said.textContent = words(spot);
  }
  // The next node that the query finds, by steps of one; -1: there is none, or no query.
  function found(from, step) {
    if (!choice().q) return -1;
    for (let i = from; i >= 0 && i < places.length; i += step) if (!places[i].one.dim) return i;
    return -1;
  }
  function jump() {
    const first = found(0, 1);
    if (first >= 0) { map.focus(); select(first, { say: true }); }
  }
  function under(event) {
    const box = map.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    return places.findIndex((spot) => x >= spot.x && x < spot.x + size && y >= spot.y && y < spot.y + size);
  }
  function open() { if (places[at]) location.assign(of_then(`${map.dataset.nodes}${encodeURIComponent(places[at].one.name)}/`)); }

  map.addEventListener("mousemove", (event) => { const found = under(event); if (found !== at) select(found); });
  map.addEventListener("mouseleave", () => { if (document.activeElement !== map) select(-1); });
  map.addEventListener("click", (event) => { at = under(event); open(); });
  map.addEventListener("blur", () => select(-1));
  map.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -Infinity, End: Infinity }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const beside = Math.abs(step) === 1 ? found(at + step, step) : -1;
      select(beside >= 0 ? beside : Math.max(0, Math.min(places.length - 1, at < 0 ? 0 : at + step)), { say: true });
    }
    else if (event.key === "Enter") { event.preventDefault(); open(); }
    else if ((event.key === "c" || event.key === "d") && places[at]) {
      event.preventDefault();
      const what = event.key === "c" ? "cordon" : "drain";
      if (map.dataset.change) location.assign(`${map.dataset.change}?${new URLSearchParams([["do", what], ["node", places[at].one.name]])}`);
    }
  });

  function remember() {
    const given = new URLSearchParams([...Object.entries(choice())].filter(([name, value]) => value && !(name === "by" && value === "fullness") && !(name === "group" && value === form.elements.group.options[0]?.value)));
    history.replaceState(null, "", `${map.dataset.page}${given.size ? "?" + given : ""}`);
    const query = choice().q;
    document.getElementById("as-table").href = of_then(map.dataset.nodes + (query ? `?q=${encodeURIComponent(query)}` : ""));
  }
  let later = 0;
  for (const event of ["input", "change"]) form.addEventListener(event, () => { clearTimeout(later); later = setTimeout(() => { remember(); ask(true); }, 200); });
  // Enter goes from the search to the first node that it finds.
  form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(later); jumps = true; remember(); ask(true); });
  map.addEventListener("console:draw", () => ask(false));
  addEventListener("resize", () => { if (nodes.size) { place(); draw(); } });
  dark.addEventListener("change", draw);
  document.addEventListener("htmx:afterSwap", () => {
    const fresh = document.getElementById("new-cards");
    if (fresh) document.getElementById("cards").replaceChildren(...fresh.content.firstElementChild.cloneNode(true).childNodes);
  });
  remember();
  ask(true);
}
