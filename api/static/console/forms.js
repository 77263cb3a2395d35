// What a person types stays: when the session ends, while the service is away, when a form is sent
// twice, and on the way back from a preview.

const body = document.body;
const over = document.getElementById("signed-out");
const PATIENCE = 10000;
// A form that was sent leads to another page within this time; then it may be sent again.
const SENDING = 15000;

// ------------------------------------------------------------------ who is signed in
/** Return who is signed in and the token that forms have to bear; null: nobody, undefined: no answer. */
async function here() {
  const answer = await fetch(body.dataset.here, { headers: { "HX-Request": "true" }, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) }).catch(() => null);
  if (answer?.status === 401) return null;
  return answer?.ok ? answer.json() : undefined;
}

/** Tell that the session has ended: by the sign-in, or, where something is typed, above the page. */
export function signed_out() {
  if (!document.querySelector("form.dirty")) {
    location.assign(`${body.dataset.signIn}?next=${encodeURIComponent(location.pathname + location.search)}`);
  } else if (!over.open) {
    say("");
    over.showModal();
  }
}
document.addEventListener("console:signed-out", signed_out);

/** Tell of it if nobody is signed in; return whether it was so. */
export async function was_signed_out() {
  const is_out = (await here()) === null;
  if (is_out) signed_out();
  return is_out;
}

const say = (text) => { over.querySelector("[data-said]").textContent = text; };
const another = (name) => `You are ${name} now; this page is ${body.dataset.person}'s. Copy what you typed, and open the page again.`;
function renew(token) { document.querySelectorAll("[name=csrfmiddlewaretoken]").forEach((one) => { one.value = token; }); }

// In another tab the person has signed in: forms of this page bear that session's token from now on.
async function go_on(asked) {
  const found = await here();
  if (!over.open) return;
  if (found && found.person === body.dataset.person) {
    renew(found.token);
    over.close();
    document.dispatchEvent(new Event("console:signed-in"));
  } else if (found) say(another(found.person));
  else if (asked) say(found === null ? "Nobody is signed in yet." : "The service does not answer. Try again in a moment.");
}
over?.querySelector("[data-go-on]").addEventListener("click", () => go_on(true));
document.addEventListener("visibilitychange", () => { if (over?.open && !document.hidden) go_on(false); });
addEventListener("focus", () => { if (over?.open) go_on(false); });

// ------------------------------------------------------------------ sending
// Before a form is sent the service is asked whether it would be taken: where the session has ended
// or the service is away the page stays as it is, with what was typed.
function complain(form, text) {
  let box = form.querySelector("[data-unsent]");
  if (!box) {
    box = Object.assign(document.createElement("p"), { className: "failure" });
    box.setAttribute("role", "alert");
    box.dataset.unsent = "";
    form.append(box);
  }
  box.textContent = text;
}

async function send(form, submitter) {
  const found = await here();
  if (found && found.person === body.dataset.person) {
    renew(found.token);
    form.querySelector("[data-unsent]")?.remove();
    form.dataset.sending = "sure";
    form.requestSubmit(submitter?.isConnected ? submitter : null);
    setTimeout(() => { delete form.dataset.sending; }, SENDING);
    return;
  }
  delete form.dataset.sending;
  if (found) complain(form, another(found.person));
  else if (found === null) { form.classList.add("dirty"); signed_out(); }
  else complain(form, "Nothing was sent: the service does not answer. What you typed stays here; try again in a moment.");
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const method = event.submitter?.getAttribute("formmethod") || form.getAttribute("method");
  if (event.defaultPrevented || method?.toLowerCase() !== "post" || form.dataset.leaves !== undefined) return;
  if (form.dataset.sending === "sure") { form.dataset.sending = "sent"; return; }
  event.preventDefault();
  if (form.dataset.sending) return; // pressed twice
  form.dataset.sending = "asks";
  send(form, event.submitter);
});
addEventListener("pageshow", () => document.querySelectorAll("form[data-sending]").forEach((form) => { delete form.dataset.sending; }));

// ------------------------------------------------------------------ rows that are added and removed
const rows_of = (form) => [...form.querySelectorAll("[data-rows-of]")];
const typed_into = (row) => [...row.querySelectorAll("input:not([type=hidden]), select")];
function add_row(box) {
  box.append(document.querySelector(`[data-new="${box.dataset.rowsOf}"]`).content.cloneNode(true));
  return box.lastElementChild;
}
function remove_row(row) {
  row.closest("form").classList.add("dirty");
  typed_into(row).forEach((one) => one.remove());
  row.querySelector("[data-remove]")?.remove();
}
document.addEventListener("click", (event) => {
  const add = event.target.closest?.("[data-add]");
  if (add) add_row(document.querySelector(`[data-rows-of="${add.dataset.add}"]`)).querySelector("input:not([type=hidden])").focus();
  const remove = event.target.closest?.("[data-remove]");
  if (remove) remove_row(remove.closest(".row"));
});
document.addEventListener("input", (event) => event.target.closest?.("form[data-edits]")?.classList.add("dirty"));

// ------------------------------------------------------------------ the way back
// Who looks at a preview and comes back finds what was typed, also rows that were added: it is kept
// for the entry of the browser's history, in this tab. A page that is opened anew is as it is stored.
const entry = history.state?.entry || Math.random().toString(36).slice(2);
const place = `typed:${entry}`;
if (history.state?.entry !== entry) history.replaceState({ ...history.state, entry }, "");

/** Return what a row was made from, empty for a row that was added. */
const origin = (row) => [...row.querySelectorAll("input[type=hidden], input[readonly]")].map((one) => one.value).join("\n").trim();
const fields_of = (form) => [...form.elements].filter((one) => one.name && !["hidden", "password", "file"].includes(one.type) && !one.closest("[data-rows-of]") && one.localName !== "button");
const value_of = (field) => (["checkbox", "radio"].includes(field.type) ? field.checked : field.value);

function typed(form) {
  return {
    fields: fields_of(form).map((one) => [one.name, value_of(one)]),
    rows: rows_of(form).map((box) => [...box.children].map((row) => [origin(row), typed_into(row).map(value_of)])),
  };
}

function give_back(form, { fields, rows }) {
  const now = fields_of(form);
  fields.forEach(([name, value], number) => {
    const field = now[number];
    if (field?.name !== name) return;
    if (typeof value === "boolean") field.checked = value; else field.value = value;
  });
  rows_of(form).forEach((box, number) => {
    const here_now = [...box.children];
    for (const [from, values] of rows[number] || []) {
      let row = from && here_now.find((one) => origin(one) === from);
      if (!values.length) { if (row) remove_row(row); continue; }
      row ||= add_row(box); // what it was made from is gone: it is an addition
      typed_into(row).forEach((one, at) => { if (!one.readOnly || !from) one.value = values[at] ?? ""; });
    }
  });
  form.classList.add("dirty");
  const note = Object.assign(document.createElement("p"), { className: "quiet" });
  note.setAttribute("role", "status");
  note.append("What you had typed is here again. ", Object.assign(document.createElement("a"), { href: location.href, textContent: "Start anew" }));
  form.prepend(note);
}

function keep() {
  const found = [...document.querySelectorAll("form[data-edits]")].map((form) => (form.classList.contains("dirty") ? typed(form) : null));
  try {
    if (found.some(Boolean)) sessionStorage.setItem(place, JSON.stringify(found));
    else sessionStorage.removeItem(place);
  } catch { /* more than the browser keeps */ }
}
addEventListener("pagehide", keep);

if (performance.getEntriesByType("navigation")[0]?.type === "back_forward") {
  const kept = JSON.parse(sessionStorage.getItem(place) || "[]");
  document.querySelectorAll("form[data-edits]").forEach((form, number) => { if (kept[number]) give_back(form, kept[number]); });
}
