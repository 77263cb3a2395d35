// The question marks beside boxes that filter have a name, which is read out only with a role. They
// are made by a script when the page has loaded.
const give_role = () => document.querySelectorAll(".help-tooltip[aria-label]:not([role])").forEach((mark) => mark.setAttribute("role", "img"));
new MutationObserver(give_role).observe(document.documentElement, { childList: true, subtree: true });
give_role();
