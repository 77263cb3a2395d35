// The question marks beside boxes that filter have a name, which is read out only with a role. They
// are made by a script when the page has loaded.
const give_role = () => document.querySelectorAll(".help-tooltip[aria-label]:not([role])").forEach((mark) => mark.setAttribute("role", "img"));
new MutationObserver(give_role).observe(document.documentElement, { childList: true, subtree: true });
give_role();

// Unfold's templates are written for Alpine with eval. The build without reads an expression by a
// parser of its own, which knows neither globals nor several statements: functions of Unfold's
// script are registered under their names, and the attributes it cannot read are replaced.
const SIDEBAR = "sidebarDesktopOpen";

const page = (first_tab) => ({
  activeTab: getCurrentTab() || first_tab,
  sidebarMobileOpen: false,
  [SIDEBAR]: localStorage.getItem(SIDEBAR) !== "0",
  init() {
    this.$watch(SIDEBAR, (is_open) => localStorage.setItem(SIDEBAR, is_open ? "1" : "0"));
  },
  formAction() {
    const tab = this.activeTab && this.activeTab !== "general" ? `#${this.activeTab}` : "";
    return location.pathname + location.search + tab;
  },
});

// Where nobody chose a theme the page is as dark as the browser prefers, also when that changes.
const theme_of_browser = (...given) => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const made = window.theme(...given);
  const { init, themeBindings } = made;
  const classes = themeBindings["x-bind:class"];
  return Object.assign(made, {
    prefersDark: dark.matches,
    init() {
      init.call(this);
      dark.addEventListener("change", () => { this.prefersDark = dark.matches; });
    },
    themeBindings: {
      ...themeBindings,
      "x-bind:class"() {
        void this.prefersDark; // what is read here is what makes Alpine ask again
        return classes.call(this);
      },
    },
  });
};

document.addEventListener("alpine:init", () => {
  Alpine.data("theme", theme_of_browser);
  for (const name of ["searchForm", "searchDropdown", "searchCommand"]) Alpine.data(name, window[name]);
  Alpine.data("page", page);
  const first_tab = /activeTab: '([^']*)'/.exec(document.body.getAttribute("x-data"))?.[1] ?? "";
  document.body.setAttribute("x-data", `page('${first_tab}')`);
  document.body.removeAttribute("x-init");
  for (const [attribute, start, readable] of [
    ["x-on:click", `${SIDEBAR} = `, `${SIDEBAR} = !${SIDEBAR}`],
    ["x-bind:action", "activeTab && ", "formAction()"],
    ["x-on:keydown.enter.prevent", "if (!$event.metaKey", "$event.ctrlKey || $event.metaKey || selectItem(false, false)"],
  ]) {
    const found = document.querySelectorAll(`[${CSS.escape(attribute)}^="${start}"]`);
    found.forEach((element) => element.setAttribute(attribute, readable));
  }
});
