// Every node by every plugin: of thousands of rows those on the screen are in the page. Sorted,
// searched and compared here, from columns that are asked for once.

const table = document.getElementById("every-node");
const BEFORE_AND_AFTER = 10;
const LONGEST = 60;

if (table) start();

async function start() {
  const box = table.closest(".scrolls");
  const problem = document.getElementById("by-problem");
  const tell = (text) => { problem.textContent = text; problem.hidden = false; };
  const answer = await fetch(table.dataset.columns, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!answer?.ok) { tell(`Only the first rows are shown; the others could not be read (${answer?.status ?? "no answer"}).`); return; }
  const found = await answer.json();
  if (!found.name) return; // it is judged otherwise by now: the rows stay as the page has them
  if (found.count > found.name.length) tell(`The first ${found.name.length} of ${found.count} nodes are shown, those with the fewest rejections first. Choose a filter above to see others.`);
  const columns = columns_of(found);
  const head = table.tHead, body = table.tBodies[0];
  const search = document.querySelector("#by-name input");
  const pinned = [];
  let order = found.name.map((_, i) => i);
  let sorted = { column: -1, down: true };
  let at = -1;
  let first = -1, last = -1;
  let high = 23;

  head.replaceChildren(make("tr", {}, [make("th", { scope: "col" }, [make("span", { className: "unseen" }, ["pin"])]), ...columns.map((one, i) => make("th", { scope: "col", className: one.is_number ? "n" : "" }, [
    make("button", { type: "button", className: "sorts", title: `sort by ${one.title}` }, [one.title], { by: i }),
  ]))]));
  table.setAttribute("aria-rowcount", String(order.length + 1));
  document.getElementById("by-name").hidden = false;
  document.getElementById("after")?.remove();

  function row(node, place) {
    const name = found.name[node];
    const is_pinned = pinned.includes(node);
    const pin = make("button", { type: "button", className: "pin", title: is_pinned ? "stop comparing it" : "compare it with another one" }, [is_pinned ? "×" : "+"], { pin: node });
    pin.setAttribute("aria-label", `${is_pinned ? "Unpin" : "Pin"} ${name}`);
    pin.setAttribute("aria-pressed", String(is_pinned));
    const cells = columns.map((one, i) => {
      const [text, title, bad] = one.cell(node);
      if (!i) return make("th", { scope: "row" }, [make("a", { href: `${table.dataset.nodes}${encodeURIComponent(name)}/` }, [name])]);
      const short = text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
      const cell = make("td", { className: `${one.is_number ? "n" : ""}${bad ? " warn" : ""}`.trim() }, [short]);
      if (title || short !== text) cell.title = [title, short !== text ? text : ""].filter(Boolean).join(": ");
      return cell;
    });
    const line = make("tr", { className: place === at ? "at" : "" }, [make("td", { className: "tick" }, [pin]), ...cells], { place });
    line.setAttribute("aria-rowindex", String(place + 2));
    return line;
  }

  // Rows have one height, so that what is above and below the screen is two empty rows.
  function draw(anew) {
    const top = Math.max(0, Math.floor(box.scrollTop / high) - BEFORE_AND_AFTER);
    // The box is as high as its rows, and at most a part of the window.
    const end = Math.min(order.length, Math.ceil((box.scrollTop + Math.max(box.clientHeight, innerHeight)) / high) + BEFORE_AND_AFTER);
    if (!anew && top === first && end === last) return;
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.place : undefined;
    const was_pin = document.activeElement?.matches?.(".pin");
    first = top; last = end;
    const rows = order.slice(top, end).map((node, i) => row(node, top + i));
    body.replaceChildren(space(top), ...rows, space(order.length - end));
    if (focused !== undefined) body.querySelector(`tr[data-place="${focused}"] ${was_pin ? ".pin" : "a"}`)?.focus({ preventScroll: true });
    body.dataset.drawn = String(order.length);
  }
  function space(rows) {
    const line = make("tr", { className: "space" }, [make("td", { colSpan: columns.length + 1 }, [])]);
    line.setAttribute("aria-hidden", "true");
    line.firstChild.style.height = `${rows * high}px`;
    line.hidden = !rows;
    return line;
  }

  function arrange() {
    const part = search.value.trim().toLowerCase();
    order = found.name.map((_, i) => i).filter((i) => !part || found.name[i].toLowerCase().includes(part));
    const { column, down } = sorted;
    if (column >= 0) {
      const { key } = columns[column];
      order.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        const by = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
        return down ? -by : by;
      });
    }
    head.querySelectorAll("th").forEach((one, i) => {
      if (i - 1 === column && column >= 0) one.setAttribute("aria-sort", down ? "descending" : "ascending");
      else one.removeAttribute("aria-sort");
    });
    at = -1;
    box.scrollTop = 0;
    table.setAttribute("aria-rowcount", String(order.length + 1));
    draw(true);
  }

  function compare() {
    const place = document.getElementById("pinned");
    const names = pinned.map((i) => found.name[i]);
    if (pinned.length < 2) { place.textContent = names.length ? `${names[0]} is pinned: pin another one to compare both.` : ""; return; }
    const [a, b] = pinned;
    const lines = columns.slice(1).map((one) => {
      const [x, y] = [one.key(a), one.key(b)];
      const by = one.is_number && x !== null && y !== null ? x - y : null;
      return { one, by, x: one.cell(a), y: one.cell(b) };
    }).filter(({ x, y }) => x[0] || y[0]);
    lines.sort((p, q) => Math.abs(q.by ?? 0) - Math.abs(p.by ?? 0));
    const words = ([text, title]) => (title.startsWith("raw") ? `${text} (${title})` : text);
    place.replaceChildren(make("div", { className: "scrolls" }, [make("table", { id: "compared" }, [
      make("thead", {}, [make("tr", {}, ["plugin", ...names, "ahead by"].map((text, i) => make("th", { scope: "col", className: i ? "n" : "" }, [text])))]),
      make("tbody", {}, lines.map(({ one, by, x, y }) => make("tr", {}, [
        make("th", { scope: "row" }, [one.title]),
        make("td", { className: `n${x[2] ? " warn" : ""}` }, [words(x)]),
        make("td", { className: `n${y[2] ? " warn" : ""}` }, [words(y)]),
        make("td", { className: "n" }, [by === null ? (x[0] === y[0] ? "alike" : "differs") : by ? String(by) : "equal"]),
      ]))),
    ])]));
  }

  head.addEventListener("click", (event) => {
    const button = event.target.closest("[data-by]");
    if (!button) return;
    const column = Number(button.dataset.by);
    sorted = { column, down: sorted.column === column ? !sorted.down : columns[column].is_number };
    arrange();
  });
  body.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pin]");
    if (!button) return;
    const node = Number(button.dataset.pin);
    const where = pinned.indexOf(node);
    if (where >= 0) pinned.splice(where, 1); else pinned.push(node);
    if (pinned.length > 2) pinned.shift();
    compare();
    draw(true);
  });
  let later = 0;
  search.addEventListener("input", () => { clearTimeout(later); later = setTimeout(arrange, 100); });
  box.addEventListener("scroll", () => draw(false));
  addEventListener("resize", () => draw(false));
  // j and k go through all rows, also those that are not in the page yet.
  document.addEventListener("keydown", (event) => {
    const step = { j: 1, k: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || !order.length || event.target.matches?.("input, select, textarea") || event.target.closest?.("dialog[open]")) return;
    event.preventDefault();
    event.stopPropagation();
    at = Math.max(0, Math.min(order.length - 1, at + step));
    const above = at * high, below = above + high - box.clientHeight + head.offsetHeight + high;
    if (box.scrollTop > above) box.scrollTop = above; else if (box.scrollTop < below) box.scrollTop = below;
    draw(true);
    body.querySelector(`tr[data-place="${at}"] a`)?.focus({ preventScroll: true });
  }, true);

  table.every_row = () => [columns.map((one) => one.title), ...order.map((node) => columns.map((one) => one.cell(node)[0]))];
  draw(true);
  const real = body.querySelector("tr[data-place]")?.getBoundingClientRect().height;
  if (real && real !== high) { high = real; draw(true); }
}

function make(name, values, children, data = {}) {
  const one = Object.assign(document.createElement(name), values);
  Object.assign(one.dataset, data);
  one.append(...children);
  return one;
}

// A column: its title, what a cell shows ([text, title, is bad]), and what it is sorted by (null: last).
function columns_of(found) {
  const columns = [
    { title: "node", is_number: false, cell: (i) => [found.name[i], "", false], key: (i) => found.name[i] },
    { title: "rejections", is_number: true, cell: (i) => [found.rejections[i] ? String(found.rejections[i]) : "", "", false], key: (i) => found.rejections[i] },
  ];
  if (found.total) columns.push({ title: "total", is_number: true, cell: (i) => [said(found.total[i]), "", false], key: (i) => found.total[i] });
  for (const [title, verdicts] of Object.entries(found.verdicts)) {
    const words = (i) => { const one = found.statuses[verdicts[i]]; return verdicts[i] ? [one.reasons.join("; ") || one.code, one.code, true] : ["fits", "", false]; };
    columns.push({ title, is_number: false, cell: words, key: (i) => (verdicts[i] ? words(i)[0] : null) });
  }
  for (const [title, score] of Object.entries(found.scores || {})) {
    const words = (i) => (score.weighted[i] === null ? ["", "not scored", false] : [String(score.weighted[i]), `raw ${score.raw[i]}, normalised ${score.normalized[i]}, weight ${score.weight}`, false]);
    columns.push({ title, is_number: true, cell: words, key: (i) => score.weighted[i] });
  }
  return columns;
}
function said(value) { return value === null ? "" : String(value); }
