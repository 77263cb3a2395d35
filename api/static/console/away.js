// Opens the page anew as soon as the service can show it.

async function look() {
  const answer = await fetch(document.querySelector("[data-here]").dataset.here, { headers: { "HX-Request": "true" }, cache: "no-store" }).catch(() => null);
  if (answer && answer.status < 500) location.reload(); else setTimeout(look, 1000);
}
setTimeout(look, 1000);
